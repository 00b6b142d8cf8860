"""Which optimiser steps are made: those with finite numbers."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ngrpo.checkpoint.folders import how_to_resume
from ngrpo.distributed.collectives import ranks
from ngrpo.errors import RunError, SettingError
from ngrpo.training.samples import Sample
from ngrpo.training.skipped_steps import FOLDER, BadStep, save

log = logging.getLogger(__name__)

_MOST_FILES = 20
"""A run that skips a step now and then must not fill the disk."""


class StepGuard:
    """Skips steps that are not finite, keeps what they were made from, and ends a run that has nothing else.

    It is asked on every rank with numbers that are reduced over the ranks, so all of them skip the same steps.

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
        self._step = 0
        self._in_a_row = 0
        self._files = 0
        self._skipped = 0

    def begin(self, iteration: int, problems: Mapping[int, int]) -> None:
        """Starts an iteration; ``problems`` has the key of the problem that each rollout answers, by the rollout's."""
        self._iteration = iteration
        self._problems = dict(problems)
        self._step = self._skipped = 0

    @property
    def skipped(self) -> int:
        """Steps skipped in this iteration."""
        return self._skipped

    def admits(self, samples: Sequence[Sample], numbers: Mapping[str, Tensor], spoiled: bool = False) -> bool:
        """Says whether to make a step.

        Args:
            samples: this rank's share of the minibatch.
            numbers: what must be finite, by name; the same on all ranks.
            spoiled: whether a reward of the minibatch is infinite; the same on all ranks.

        Raises:
            RunError: it is the ``limit``-th in a row that is not.
        """
        bad = [f"{name} {float(value):g}" for name, value in numbers.items() if not bool(value.isfinite())]
        bad += ["a reward is infinite"] if spoiled else []
        self._step += 1
        if not bad:
            self._in_a_row = 0
            return True
        self._in_a_row += 1
        self._skipped += 1
        self._keep(samples, ", ".join(bad))
        return False

    def _keep(self, samples: Sequence[Sample], reason: str) -> None:
        place = f"iteration {self._iteration + 1}, optimiser step {self._step}"
        if self.run_dir is not None and ranks().first and self._files < _MOST_FILES:
            self._files += 1
            name = f"iteration-{self._iteration + 1}-step-{self._step}-rank-{ranks().data_rank}.pt"
            problems = [self._problems[sample.rollout.key] for sample in samples]
            bad = BadStep(self.settings, self._iteration, self._step - 1, reason, problems, samples)
            save(bad, self.run_dir / FOLDER / name)
        log.warning("%s was skipped: %s", place, reason)
        if self._in_a_row >= self.limit:
            raise RunError(
                f"trainer.max_bad_steps={self.limit} optimiser steps in a row were skipped, the last for its {reason} "
                f"({place}); lower trainer.optimizer.lr, or look at them with scripts/replay_step.py "
                f"{self.run_dir}/{FOLDER}; {how_to_resume(self.run_dir) if self.run_dir else 'nothing was saved'}.",
                everywhere=True,
            )
