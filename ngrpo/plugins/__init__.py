"""Exploration in other programs that train: each plug-in is one module to import, which imports that program.

- ``prompts.py``: The prompts that other frameworks can train with: texts
- ``strategies.py``: The strategies that other frameworks can train with: those that they score by token, and replay by
  records alone
- ``trl.py``: Exploration for TRL: `ExploringGRPOTrainer`, and the mixin that it is made of
- ``trl_weights.py``: The weights of a policy that TRL trains, as an engine of this project takes them
- ``verl.py``: Exploration for verl: rollouts of servers as its rollout engine and agent loop, and an actor that replays
  records
- ``verl_agent_loop.py``: The agent loop of verl that asks servers for rollouts with exploration, one a call
- ``verl_records.py``: Records as a field of verl's batches: put there by an agent loop, and found there by the actor
- ``verl_servers.py``: The servers that make verl's rollouts: the settings that name them, and the weights that verl
  sends them
"""
