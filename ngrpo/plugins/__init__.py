"""Exploration in other programs that train: each plug-in is one module, which imports that program.

- ``strategies.py``: The strategies that other frameworks can train with: those that they score by token, and replay by
  records alone
- ``trl.py``: Exploration for TRL: `ExploringGRPOTrainer`, and the mixin that it is made of
- ``trl_weights.py``: The weights of a policy that TRL trains, as an engine of this project takes them
- ``verl.py``: Exploration for verl: records as fields of its batches, and its FSDP actor replaying them
"""
