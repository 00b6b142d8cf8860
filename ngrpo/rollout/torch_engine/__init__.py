"""The rollout engine in plain PyTorch.

- ``batch_state.py``: State and records of the rollouts that the torch engine is running, one row each, kept compact
- ``engine.py``: The embedded engine: plain PyTorch, runs everywhere, and is the oracle that other engines are held to
- ``kv_cache.py``: The torch engine's key/value cache: preallocated, one slot a running rollout, and the two passes
  that use it
"""

from ngrpo.compat.attributes import moved_from

__getattr__ = moved_from(__name__)
