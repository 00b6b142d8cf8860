"""Records of mixed decoding on the device, for an engine that decodes in processes and graphs of its own.

A *session* is one `generate` call: the engine sends its description to every worker, and any number of them may be
live. Each request that runs owns one of its session's *slots*, with room for a record, until the record is collected;
one more slot is scratch. A slot's *address* says which session it is of, too: it is all that a forward has to know of a
row. Around each forward the *stepper* does two things: it fills the *buffers* that the forward reads (mixtures instead
of embeddings) from the records of the scheduled tokens, and it chooses and records the next tokens. *Split* cuts the
records of finished requests into rollouts. `ngrpo.rollout.vllm` uses all of it; `ngrpo.rollout.torch_engine`, which
runs in the trainer's process, keeps its records in its own `batch_state`.

- ``buffers.py``: The buffers of what the next forward feeds, at addresses that CUDA graphs keep
- ``host_memory.py``: Pinned host memory that kernels of the device read and write
- ``session.py``: The session of one `generate` call: its requests and strategy on the device, and the records of what
  was decided
- ``split.py``: The split of a session's records into rollouts
- ``stepper.py``: The two computations around an engine's forward: filling the input buffers, and choosing and
  recording tokens
"""
