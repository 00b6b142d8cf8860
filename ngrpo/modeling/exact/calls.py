"""A strategy's own calls of linear maps and products, replaced by exact ones while the strategy runs."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ngrpo.modeling.exact.linear import exact_linear
from ngrpo.modeling.exact.number_by_number import UNEVEN, number_by_number

_PRODUCTS = frozenset({torch.matmul, torch.mm, Tensor.matmul, Tensor.mm})


class ExactCalls(TorchFunctionMode):
    """A context in which functions whose result for a row depends on the batch give it the same one in any.

    They are `torch.nn.functional.linear`, the product of rows with a matrix, and those of `UNEVEN`.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Calls the exact function in place of the ordinary one, anything else as it is."""
        named = kwargs or {}
        if func is torch.nn.functional.linear:
            return exact_linear(*args, **named)
        if func in _PRODUCTS and not named and args[0].dim() > 1 and args[1].dim() == 2:  # noqa: PLR2004
            return exact_linear(args[0], args[1].T)
        if func in UNEVEN and args:
            return number_by_number(partial(_of_first, func, args[1:], named), args[0])
        return func(*args, **named)


def _of_first(func: Callable[..., Tensor], others: Sequence[Any], named: Mapping[str, Any], first: Tensor) -> Tensor:
    return func(first, *others, **named)
