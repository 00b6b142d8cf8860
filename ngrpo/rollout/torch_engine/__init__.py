"""The rollout engine in plain PyTorch: continuous batching over a preallocated key/value cache.

`stream` has the loop (admit, prefill, a burst of decode steps, remove what is finished); one row of `batch_state` and
one slot of `kv_cache` belong to each running rollout.

- ``batch_state.py``: The state and records of the rollouts that the torch engine is running: one row each, without
  gaps
- ``burst.py``: Bursts: decode steps without a look of the host, on a GPU replayed from CUDA graphs
- ``engine.py``: The embedded engine in plain PyTorch: it runs everywhere, and other engines are tested against it
- ``kv_cache.py``: The torch engine's key/value cache: preallocated, one slot a rollout, with attention for prefill
  and decode
- ``prefill.py``: The known part of requests: prompts, and prefixes of responses with their records
- ``stream.py``: The requests of one call on the torch engine: they wait for rows, run, and come back as rollouts
"""

from ngrpo.compat.attributes import serve_old_names

serve_old_names(__name__)
