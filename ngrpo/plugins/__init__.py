"""Exploration in other programs that train: each plug-in is one module, which imports that program.

- ``trl.py``: Exploration for TRL: `ExploringGRPOTrainer`, and the mixin that it is made of
- ``trl_weights.py``: The weights of a policy that TRL trains, as an engine of this project takes them
- ``verl.py``: Exploration for verl: records as fields of its batches, and its FSDP actor replaying them
"""
