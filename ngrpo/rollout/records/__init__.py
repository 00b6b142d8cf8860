"""Records of a rollout as an engine makes them, whatever the engine.

- ``buffers.py``: What the next forward feeds, at addresses that CUDA graphs keep
- ``host_memory.py``: Host memory that the device reads and writes
- ``session.py``: What one `generate` call needs inside vLLM's workers, and the records it leaves there
- ``split.py``: A session's records, cut into rollouts
- ``stepper.py``: The two computations around vLLM's forward: what to feed, and what to choose and record
"""
