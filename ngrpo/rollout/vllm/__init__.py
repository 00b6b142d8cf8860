"""Rollouts in vLLM: the engine, and the plugin that mixes embeddings inside vLLM's compiled forward.

`engine` is what the trainer uses. Everything that touches vLLM's private interfaces lives in `runner_v1`, `runner_v2`,
`embedding` and `prefix_cache`; `versions` refuses a vLLM that they were not tested with.

- ``checksum.py``: A number that tells tensors apart by the bits of their elements and where they stand
- ``coverage.py``: Telling which served weights a transfer has written: those that do not hold a mark any more
- ``device.py``: Which GPU a child process gets
- ``embedding.py``: The input embedding that mixes, inside vLLM's compiled and captured forward
- ``engine.py``: The vLLM rollout engine
- ``mixing_state.py``: What the adapters of both model runners share: the session in force and the buffers it fills
- ``plugin.py``: Puts the hooks in place, in whatever process of vLLM imports or loads this
- ``prefix_cache.py``: Prefix caching: prompts are shared, what a rollout generated is not
- ``process_watch.py``: Notices the death of vLLM's engine processes, for which its synchronous client waits for ever
- ``progress.py``: What vLLM says of its progress, in our words
- ``runner_v1.py``: Adapter of vLLM's V1 model runner (CPU): three methods of the runner's instance are wrapped
- ``runner_v2.py``: Adapter of vLLM's Model Runner V2: a model state and a sampler, through hooks that vLLM has for
  them
- ``tensor_ipc.py``: Tensors handed to another process without a copy: shared memory on a CPU, CUDA IPC on a GPU
- ``versions.py``: Which vLLM versions the adapters were tested with
- ``weight_transfer.py``: The policy's weights on their way into vLLM's workers, and the proof that they are served as
  they were sent
- ``worker_extension.py``: Methods that our engine calls on vLLM's workers; importing this installs the hooks in the
  worker's process
"""
