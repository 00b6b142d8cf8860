"""The largest reward that can be had, for advantages that compare rewards with it."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from ngrpo.algo.marks import inner, keywords
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.errors import SettingError

Bounds = tuple[float, float]
"""The smallest and the largest value of a reward or of a reward term."""


def sum_of_bounds(reward: Bounds, terms: Sequence[tuple[float, Bounds]]) -> Bounds:
    """Returns the bounds of a reward and weighted terms, added up as rewards are: in float64, in order, rounded once.

    Rewards are compared with them exactly: an ulp beside the largest reward would count as a difference.
    """
    low, high = (float(value) for value in reward)
    for weight, bounds in terms:
        weighted = [weight * float(value) for value in bounds]
        low, high = low + min(weighted), high + max(weighted)
    rounded = torch.tensor([low, high], dtype=torch.float64).float().tolist()
    return rounded[0], rounded[1]


def with_best(algorithm: Algorithm, bounds: Bounds | None) -> Algorithm:
    """Returns the algorithm with ``advantage.best`` as it is set, or else the largest reward.

    Args:
        algorithm: as configured; one whose advantage has no ``best`` is returned as it is.
        bounds: of the rewards in use; None if one of them does not say.

    Raises:
        SettingError: it is to be derived from rewards that do not say how large they become, or what is set
            contradicts those that do.
    """
    function, settings = inner(algorithm.advantage), keywords(algorithm.advantage)
    if not getattr(function, "compares_with_best", False):
        return algorithm
    best = settings.get("best")
    if best is None:
        best = _derived(bounds)
    elif bounds is not None:
        _check(float(best), bounds, getattr(function, "thresholded", False))
    elif not math.isfinite(best):
        raise SettingError(f"algo.advantage.best={best} is no reward; set it to the largest one.")
    return replace(algorithm, advantage=partial(function, **settings | {"best": best}))


def largest_allowed(algorithm: Algorithm) -> float | None:
    """Returns the best that `with_best` has filled in, where larger rewards must not come; None where they may."""
    function, settings = inner(algorithm.advantage), keywords(algorithm.advantage)
    compares = getattr(function, "compares_with_best", False) and not getattr(function, "thresholded", False)
    return settings.get("best") if compares else None


def _derived(bounds: Bounds | None) -> float:
    if bounds is None:
        raise SettingError(
            "algo.advantage.best=null takes the largest reward, which a reward or a reward term of your own does not"
            " tell; set algo.advantage.best to it."
        )
    return bounds[1]


def _check(best: float, bounds: Bounds, threshold: bool) -> None:
    low, high = bounds
    if threshold and not low < best <= high:
        raise SettingError(
            f"algo.advantage.best={best} does not tell right answers, rewarded {high:g}, from wrong ones, rewarded"
            f" {low:g}; set algo.advantage.best=null, which takes the former."
        )
    if not threshold and not (torch.tensor(best, dtype=torch.float32) >= high and math.isfinite(best)):
        raise SettingError(
            f"algo.advantage.best={best} is less than the largest reward {high:g}, so that solved groups would be"
            " rewarded for nothing; set algo.advantage.best=null, which takes that."
        )
