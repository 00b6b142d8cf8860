"""A strategy's own calls of linear maps, replaced by exact ones while the strategy runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ngrpo.modeling.exact.linear import exact_linear


class ExactCalls(TorchFunctionMode):
    """A context in which `torch.nn.functional.linear` gives a row the same result in any batch."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Calls the exact map in place of the ordinary one, anything else as it is."""
        called = exact_linear if func is torch.nn.functional.linear else func
        return called(*args, **(kwargs or {}))
