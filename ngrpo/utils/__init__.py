"""Small helpers that know nothing of reinforcement learning.

- ``atomic_write.py``: Files and folders that are there whole or not at all, and the removal of those that are not
  wanted any more
- ``author_code.py``: Whether an error came out of code of the user's own, whose author needs the traceback
- ``duration.py``: Spans of time as a person writes them
- ``hub.py``: The Hugging Face hub where it cannot be reached: its libraries wait for minutes, this program for
  seconds
- ``input_files.py``: Small files that a user names: read whole, or refused in one sentence
- ``lock.py``: One process group an output folder
- ``optional_packages.py``: Packages that only some settings need
- ``out_of_memory.py``: Recognises errors for want of memory, on CUDA and on a CPU
- ``provenance.py``: What code produced a result
- ``remote_error.py``: Exceptions of another process, and the place in the code that an exception comes from
- ``sanitize.py``: Text that a model wrote, made harmless for where it is shown
- ``standard_streams.py``: Standard output and error that may be closed, or go away: the reader of a pipe, a terminal,
  room on a disk
- ``torch_settings.py``: What PyTorch keeps for a whole process
"""
