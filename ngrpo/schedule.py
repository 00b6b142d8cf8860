"""The learning rate over the optimiser steps of a run, as a factor on its setting."""

import math


def unchanged(step: int) -> float:
    """1 at every step."""
    return 1.0


def constant(step: int, steps: int, warmup: int = 0) -> float:
    """1 after a linear rise over the first ``warmup`` steps.

    Args:
        step: optimiser steps made so far.
        steps: of the whole run.
        warmup: steps at a lower rate; the first has ``1 / warmup`` of it.
    """
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


def cosine(step: int, steps: int, warmup: int = 0, floor: float = 0.0) -> float:
    """Half a cosine from 1 down to ``floor`` at the last step, after a linear rise as in `constant`.

    Args:
        step: optimiser steps made so far.
        steps: of the whole run; a resume with more iterations stretches the curve.
        warmup: steps of the rise.
        floor: the last factor.
    """
    if step < warmup:
        return constant(step, steps, warmup)
    done = min(1.0, (step - warmup) / max(1, steps - warmup))
    return floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * done))
