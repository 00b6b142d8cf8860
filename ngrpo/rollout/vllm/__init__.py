"""Rollouts in vLLM: the engine, and the plugin that mixes embeddings inside vLLM's compiled forward.

`engine` is what the trainer uses. vLLM is entered by its own doors: a model loader, model states, worker methods,
weight transfers and a plugin. What it has no door for is listed in `private`; `versions` refuses a vLLM older than the
tested.

- ``attachment.py``: The attachment of a loaded vLLM model: an embedding that mixes, a model state, and a view of its
  head's input
- ``availability.py``: Facts for the choice of an engine: the memory of a GPU, and the models that vLLM has
  implementations of
- ``burst_length.py``: The length of bursts: how many decode steps vLLM's workers make before its scheduler is asked
  again
- ``burst_rows.py``: The rows of a burst on the device, and what happens to them between two forwards
- ``burst_scheduler.py``: The scheduler of bursts: while rows do nothing but decode, each gets room for several tokens
  at once
- ``burst_step.py``: One step of a burst: the forward of a batch that stands, and what lies between it and the next
- ``bursts.py``: Bursts: the steps after a batch's first are made here, without vLLM's scheduler and runner in between
- ``captured_steps.py``: CUDA graphs of what lies between two forwards of a burst: choosing, recording, and preparing
  the next step
- ``checked_loading.py``: The loading of a weight transfer on a worker, recorded so that its end can be checked
- ``checksum.py``: Checksums of tensors, over the bits of their elements and their order
- ``client_engine.py``: The engine behind ``vllm serve``: vLLM's asynchronous client, used by our threads as we use an
  engine of our own
- ``coverage.py``: The coverage of a weight transfer: served weights that still hold a mark were not written
- ``cuda_ipc.py``: Both sides of vLLM's CUDA IPC backend, as our transfers use it: for any number of workers and
  training processes
- ``device.py``: The GPU of a worker: which one child processes see, and its view of host memory
- ``embedding.py``: The input embedding that mixes, inside vLLM's compiled and captured forward
- ``engine.py``: The vLLM rollout engine
- ``left_memory.py``: The shared memory of an engine's processes, which stays when the process that made it is killed
- ``loader.py``: The model loader through which vLLM loads the models of our engines: vLLM's own, and then `attach`
- ``mixing_state.py``: The mixing state of a worker, which the adapters of both model runners share: the live sessions
  and the buffers
- ``options.py``: The further arguments of ``vllm.LLM`` that ``rollout.engine.options`` may have, and those that are
  refused
- ``plugin.py``: The plugin, which every process of vLLM loads: only there does the process that schedules hear of us
- ``prefix_cache.py``: Prefix caching that shares prompts and given prefixes, but no generated tokens
- ``private.py``: Everything that is touched of vLLM's private parts, for which it has no door; the tests name each that
  moves
- ``process_watch.py``: A watch over vLLM's engine processes, whose death its synchronous client would not notice
- ``read_tensors.py``: The tensors that other code reads: what a loader passes over leaves no trace in what it loads
  into
- ``request_loop.py``: The loop that runs the requests of any number of callers on one vLLM engine, in the callers' own
  threads
- ``rollout_stream.py``: The requests of one session on vLLM: they wait for slots, run, and come back as rollouts
- ``runner_v1.py``: Adapter of vLLM's V1 model runner (CPU): its forward and its sampling are wrapped, once its model is
  loaded
- ``runner_v2.py``: Adapter of vLLM's Model Runner V2: a model state and a sampler, through hooks that vLLM has for
  them
- ``settings.py``: The settings that travel through vLLM's configuration: of an engine, and of a request
- ``socket_folder.py``: The folder of an engine's sockets, of which a killed process leaves its own behind
- ``versions.py``: The vLLM versions that the adapters were tested with, and what is done about older and newer ones
- ``weight_receivers.py``: The workers' side of a weight transfer: engines of vLLM's weight-transfer interface, one
  class a way
- ``weight_senders.py``: The trainer's side of a weight transfer: how tensors get to vLLM's workers, one class a way
- ``weight_transfer.py``: The transfer of the policy's weights into vLLM's workers, with a check that they are served
  as they were sent
- ``worker.py``: VLLM's worker with what is ours: the methods that our engine calls, and the steps of bursts
- ``worker_methods.py``: The methods that our engine calls on vLLM's workers; importing this registers our model loader
  in their process
"""
