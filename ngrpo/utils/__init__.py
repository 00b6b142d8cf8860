"""Small helpers that know nothing of reinforcement learning.

- ``atomic_write.py``: Files and folders that are written whole or not at all, and the removal of outdated ones
- ``author_code.py``: The test for errors that come out of the user's own code, whose author needs the traceback
- ``awaiting.py``: The result of an awaitable, waited for where an event loop may already run, as in a notebook
- ``cuda_graphs.py``: Capture of CUDA graphs while the device works: without `torch.cuda.graph`'s wait for it and
  collection of garbage
- ``current_gpu.py``: The GPU that a thread works on
- ``duration.py``: Spans of time as a person writes them
- ``environment_variable.py``: An environment variable that is set for a while
- ``given_values.py``: Values that a user has given: as plain Python scalars, and as error messages quote them
- ``grouped.py``: Consecutive items, as many at a time as a size allows
- ``hardware.py``: The hardware that a process computes on, in words
- ``hub_access.py``: The Hugging Face hub: names of repositories, and time limits where it cannot be reached
- ``input_files.py``: Small files that a user names: read whole, or refused in one sentence
- ``interrupts.py``: Interrupts that wait until what they would break is done
- ``lock.py``: The lock of an output folder: one process group at a time
- ``numbers.py``: Numbers as people write them; none is minus nothing, such as "-0.000"
- ``optional_packages.py``: Packages that only some parts of the program need
- ``out_of_memory.py``: The test for out-of-memory errors, on CUDA and on a CPU
- ``provenance.py``: The code that produced a result: git commit and package versions
- ``remote_error.py``: Exceptions of another process, and the place in the code that an exception comes from
- ``running_sums.py``: Sums along rows, by PyTorch's own kernel in compiled code too
- ``sanitize.py``: Text that a model wrote, made harmless for where it is shown
- ``sorted_rows.py``: Rows in order, by PyTorch's own kernel in compiled code too
- ``standard_streams.py``: Standard output and error that survive a closed terminal, a lost reader or a full disk
- ``tempered.py``: Logits at a sampling temperature, without the division where it is by one
- ``torch_settings.py``: PyTorch's settings for the whole process
- ``written_tensors.py``: The tensors that a call writes into, seen by PyTorch's own count of changes in place, and by
  copies
"""
