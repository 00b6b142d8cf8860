"""The guard that skips optimiser steps with numbers that are not finite."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ngrpo.algo.moments import Reduce
from ngrpo.checkpoint.folders import how_to_resume
from ngrpo.distributed.collectives import gathered, ranks
from ngrpo.errors import RunError, SettingError
from ngrpo.training.observed_advantages import largest
from ngrpo.training.samples import Sample
from ngrpo.training.skipped_steps import FOLDER, BadStep, save
from ngrpo.types.experience import Experience

log = logging.getLogger(__name__)

Admits = Callable[[Mapping[str, Tensor]], bool]
"""Says whether to make an optimiser step, from numbers that must be finite; the same on all ranks."""

Explain = Callable[[str], str]
"""Says why a number, by its name, is not finite (a collective); "" where that is not known."""

_LARGE = 1e9
"""Advantages above it, whose squared gradients are near the end of float32, are named where a step is not finite."""
_OF_REWARDS = "make rewards and reward_terms smaller"
_OF_STEPS = "lower trainer.optimizer.lr"

_MOST_FILES = 20
"""A run that skips a step now and then must not fill the disk."""


def always(numbers: Mapping[str, Tensor]) -> bool:
    """Admits every step."""
    return True


def no_state() -> Mapping[str, Any]:
    """Has learned nothing."""
    return {}


def unexplained(name: str) -> str:
    """Knows nothing."""
    return ""


class StepGuard:
    """Skips steps that are not finite, keeps what they were made from, and ends a run that has nothing else.

    It is asked on every rank with numbers that are reduced over the ranks, so all of them skip the same steps. Policy
    and critic both ask in a minibatch, which is one step: skipped, for what is counted, if either of them is, and kept
    for the first.

    Args:
        limit: skipped steps in a row after which the run ends.
        run_dir: where skipped steps are written, in a folder of their own; None writes none.
        settings: of the run, for the files.
    """

    def __init__(self, limit: int = 3, run_dir: Path | None = None, settings: Mapping[str, Any] | None = None) -> None:
        if limit < 1:
            raise SettingError(f"trainer.max_bad_steps={limit} would stop before the first step; choose 1 or more.")
        self.limit = limit
        self.run_dir = run_dir
        self.settings = settings or {}
        self._iteration = 0
        self._problems: dict[int, int] = {}
        self._nonfinite_rewards: frozenset[int] = frozenset()
        self._step = 0
        self._bad = False  # the present step, which a critic's finite numbers do not make good
        self._in_a_row = 0
        self._files = 0
        self._skipped = 0

    def begin(self, iteration: int, experience: Experience) -> None:
        """Starts an iteration: takes note of problems and rewards of the rollouts of all ranks (a collective).

        Of all ranks, since rollouts change ranks before they are trained on.
        """
        rows = zip(experience.rollouts, experience.keys, experience.infinite.tolist(), strict=True)
        everyone = [row for rank in gathered([(r.key, problem, bad) for r, problem, bad in rows]) for row in rank]
        self._iteration = iteration
        self._problems = {key: problem for key, problem, _ in everyone}
        self._nonfinite_rewards = frozenset(key for key, _, bad in everyone if bad)
        self._step = self._skipped = 0

    def for_minibatch(
        self,
        samples: Sequence[Sample],
        reduce: Reduce,
        explain: Explain = unexplained,
        learned: Callable[[], Mapping[str, Any]] = no_state,
    ) -> Admits:
        """Starts an optimiser step; returns what decides on its parts, the policy's and the critic's (a collective).

        Args:
            samples: this rank's part of the minibatch.
            reduce: over the data ranks.
            explain: asked of a loss that is not finite.
            learned: returns what the algorithm has learned so far, for the file of a skipped step.
        """
        self._step += 1
        if not self._bad:
            self._in_a_row = 0
        self._bad = False
        here = any(sample.rollout.key in self._nonfinite_rewards for sample in samples)
        found = torch.tensor([float(here), largest(sample.advantage for sample in samples)], dtype=torch.float64)
        anywhere, advantage = reduce(found, "max").tolist()
        return partial(
            self.admits,
            samples,
            nonfinite_reward=bool(anywhere),
            explain=explain,
            learned=learned,
            largest_advantage=advantage,
        )

    @property
    def skipped(self) -> int:
        """Steps skipped in this iteration."""
        return self._skipped

    def admits(
        self,
        samples: Sequence[Sample],
        numbers: Mapping[str, Tensor],
        nonfinite_reward: bool = False,
        explain: Explain = unexplained,
        learned: Callable[[], Mapping[str, Any]] = no_state,
        largest_advantage: float = 0.0,
    ) -> bool:
        """Says whether to make a step.

        Args:
            samples: this rank's part of the minibatch.
            numbers: what must be finite, by name; the same on all ranks.
            nonfinite_reward: whether a reward of the minibatch is infinite; the same on all ranks.
            explain: asked, on all ranks, of each of them that is not.
            learned: see `for_minibatch`.
            largest_advantage: of the minibatch, by its size; the same on all ranks.

        Raises:
            RunError: it is the ``limit``-th in a row that is not.
        """
        bad = [f"{name} {float(value):g}" for name, value in numbers.items() if not bool(value.isfinite())]
        bad += [] if nonfinite_reward else [explain(name) for name in numbers if not bool(numbers[name].isfinite())]
        bad += ["a reward is infinite"] if nonfinite_reward else []
        too_large = bool(bad) and largest_advantage > _LARGE
        bad += [f"an advantage is {largest_advantage:g}"] if too_large else []
        if bad:
            remedy = _OF_REWARDS if nonfinite_reward or too_large else _OF_STEPS
            self._skip(samples, ", ".join(filter(None, bad)), remedy, learned)
        return not bad

    def _skip(
        self, samples: Sequence[Sample], reason: str, remedy: str, learned: Callable[[], Mapping[str, Any]]
    ) -> None:
        first, self._bad = not self._bad, True
        self._in_a_row += first
        self._skipped += first
        step = f"iteration {self._iteration + 1}, optimiser step {self._step}"
        if first:
            self._keep(samples, reason, learned)
        log.warning("%s was skipped: %s", step, reason)
        if self._in_a_row >= self.limit:
            raise RunError(
                f"trainer.max_bad_steps={self.limit} optimiser steps in a row were skipped, the last for its {reason} "
                f"({step}); {remedy}, or look at them with ngrpo replay-step "
                f"{self.run_dir}/{FOLDER}; {how_to_resume(self.run_dir) if self.run_dir else 'nothing was saved'}.",
                everywhere=True,
            )

    def _keep(self, samples: Sequence[Sample], reason: str, learned: Callable[[], Mapping[str, Any]]) -> None:
        if self.run_dir is None or not ranks().first or self._files >= _MOST_FILES:
            return
        self._files += 1
        name = f"iteration-{self._iteration + 1}-step-{self._step}-rank-{ranks().data_rank}.pt"
        problems = [self._problems[sample.rollout.key] for sample in samples]
        bad = BadStep(self.settings, self._iteration, self._step - 1, reason, problems, samples, learned())
        save(bad, self.run_dir / FOLDER / name)
