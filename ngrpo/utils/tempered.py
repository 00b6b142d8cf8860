"""Logits at a sampling temperature, without the division where it is by one."""

from torch import Tensor


def tempered(logits: Tensor, temperature: float) -> Tensor:
    """Returns float32 logits / temperature, of any shape; at a temperature of 1 the logits themselves.

    A division by one changes no bit, and reads and writes all logits of a decode step. Nobody may
    write into what is returned: float32 logits at a temperature of 1 are not copied.
    """
    logits = logits.float()
    return logits if temperature == 1.0 else logits / temperature
