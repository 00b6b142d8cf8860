"""The rollouts that the page lets one browse, as its script reads them."""

import math
from collections.abc import Sequence
from typing import Any

from ngrpo.report.run_records import StoredRollout
from ngrpo.report.run_store import RunStore, surplus
from ngrpo.utils.sanitize import visible


def browsable_rollouts(store: RunStore, most_tokens: int) -> dict[int, list[dict[str, Any]]]:
    """Returns stored rollouts by iteration; where all of them are too many, of fewer iterations, spread over the run.

    Args:
        store: a run's record.
        most_tokens: of all of them together; those of the newest iteration are shown in any case.
    """
    stored = {number: store.rollouts(number) for number in store.rollout_iterations()}
    while len(stored) > 1 and sum(len(r.tokens) for rollouts in stored.values() for r in rollouts) > most_tokens:
        numbers = list(stored)
        del stored[surplus(numbers) if len(numbers) > 2 else numbers[0]]
    return {number: [browsable(rollout) for rollout in rollouts] for number, rollouts in stored.items()}


def browsable(rollout: StoredRollout) -> dict[str, Any]:
    """Returns a rollout as the page's script reads it."""
    return {
        "group": rollout.group,
        "question": visible(rollout.question),
        "reference": visible(rollout.reference),
        "answer": None if rollout.answer is None else visible(rollout.answer),
        "verdict": rollout.verdict,
        "reward": rollout.reward,
        "advantage": rollout.advantage,
        "stop": rollout.stop,
        "length": rollout.length,
        "forks": rollout.forks,
        "tokens": [visible(token) for token in rollout.tokens],
        "logProbs": _rounded(rollout.log_probs),
        "entropies": _rounded(rollout.entropies),
        "mixed": {
            m.place: {
                "names": [visible(name) for name in m.names],
                "weights": [round(weight, 4) for weight in m.weights],
                "noise": m.noise,
            }
            for m in rollout.mixed
        },
    }


def _rounded(values: Sequence[float]) -> list[float | None]:
    return [round(value, 3) if math.isfinite(value) else None for value in values]
