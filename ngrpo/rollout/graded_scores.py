"""The warning of rewards that count alike as right answers although they are far apart."""

import logging
import math
from collections.abc import Sequence

from ngrpo.types.scores import Score

log = logging.getLogger(__name__)

_FACTOR = 2.0
"""Ratio of the largest to the smallest reward of right answers; a bonus for style or length is far less."""


def warn_of_graded(scores: Sequence[Score]) -> bool:
    """Says it if right answers have rewards of another scale than right or wrong; returns whether they have.

    Of plain numbers those above 0.5 are right answers. On a scale of 0 to 100 nearly all are, and Mean@1, Pass@k,
    dynamic sampling and the methods that read outcomes cannot tell them apart.

    Args:
        scores: of one batch.
    """
    right = [score.reward for score in scores if score.correct and math.isfinite(score.reward)]
    graded = bool(right) and 0 < min(right) * _FACTOR < max(right)
    if graded:
        log.warning(
            "rewards of %g and of %g both count as right answers in Mean@1, Pass@k and selection: numbers above 0.5 "
            "do. If they should not, let the reward return ngrpo.types.scores.Score(reward, correct, answer, status).",
            min(right),
            max(right),
        )
    return graded
