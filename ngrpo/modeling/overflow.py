"""Numbers beyond the range of float16: weights that it cannot hold, and the module whose output overflows."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ngrpo.errors import RunError, SettingError

HEAD = "lm_head"
"""What overflows where no module does: the fused head makes its logits without calling one."""


def beyond_range(module: str) -> str:
    """Returns a clause on a module that overflows, with the remedy."""
    return (
        f"the output of {module} is beyond the range of float16, so set trainer.precision=bf16-mixed and "
        "rollout.engine.dtype=bfloat16"
    )


def check_range(tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype, path: str) -> None:
    """Refuses weights that a dtype cannot hold.

    Raises:
        SettingError: a finite number becomes infinite.
    """
    for name, tensor in tensors:
        if overflows(tensor, tensor.detach().to(dtype)):
            raise SettingError(
                f"model.path={path} has numbers beyond the range of trainer.precision=16-mixed in {name}; set "
                "trainer.precision=bf16-mixed."
            )


def cast_weights(tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yields weights by their names in the dtype that an engine serves.

    Raises:
        RunError: a finite number becomes infinite, or a weight is quantised to whole numbers.
    """
    for name, tensor in tensors:
        if not tensor.is_floating_point():
            raise RunError(
                f"the weight {name} is {str(tensor.dtype).removeprefix('torch.')}, which says nothing without the "
                "scale that it was quantised with; give the model that it was made from.",
                everywhere=True,
            )
        cast = tensor.detach().to(dtype)
        if overflows(tensor, cast):
            raise RunError(
                f"the weight {name} has numbers beyond the {torch.finfo(dtype).max:g} of rollout.engine.dtype="
                f"{str(dtype).removeprefix('torch.')}; set rollout.engine.dtype=bfloat16, and trainer.precision="
                "bf16-mixed, which has the range of float32.",
                everywhere=True,
            )
        yield name, cast


def overflows(tensor: Tensor, cast: Tensor) -> bool:
    """Says whether finite numbers of a tensor are infinite in a cast of it; only float16 has less range than others."""
    if cast.dtype != torch.float16 or tensor.dtype == torch.float16:
        return False
    return bool((cast.isinf() & tensor.isfinite()).any())


@contextmanager
def first_overflow(model: nn.Module) -> Iterator[Callable[[], str | None]]:
    """Watches the outputs of a model's modules; layers run uncompiled meanwhile, so that their modules are called.

    Yields:
        What returns the name of the module that was the first to return a number that is not finite; None if none did.
    """
    seen: list[tuple[str, Tensor]] = []
    handles = [
        module.register_forward_hook(lambda _, given, output, name=name: _note(seen, name, output))
        for name, module in model.named_modules()
        if name
    ]
    try:
        with torch.compiler.set_stance("force_eager"):
            yield lambda: next((name for name, finite in seen if not bool(finite)), None)
    finally:
        for handle in handles:
            handle.remove()


def _note(seen: list[tuple[str, Tensor]], name: str, output: Any) -> None:
    first = output[0] if isinstance(output, tuple) else getattr(output, "last_hidden_state", output)
    if isinstance(first, Tensor) and first.is_floating_point():
        seen.append((name, first.isfinite().all()))
