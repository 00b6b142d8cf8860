"""Reward functions as people write them: of completions and named columns, returning numbers.

- ``adapters.py``: Functions of completions as rewards and as reward terms
- ``columns.py``: The columns by which a reward function is called
"""
