"""The verdict on an engine: it has passed, now or earlier, or it is refused with the figures."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ngrpo.engine_check.comparison import PLAIN_SCORES, Finding, worst
from ngrpo.errors import RunError
from ngrpo.exploration.base import Exploration
from ngrpo.model_check import known
from ngrpo.model_check.comparison import too_coarse
from ngrpo.modeling.loading import ModelSource

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Verdict:
    """The verdict on an engine that runs a strategy.

    Attributes:
        engine: its name and version.
        source: of the model.
        settings: of the run, resolved.
        strategy: the strategy.
        started: when this was made.
    """

    engine: str
    source: ModelSource
    settings: Mapping[str, Any]
    strategy: Exploration
    started: float = field(default_factory=time.perf_counter)

    @property
    def key(self) -> str:
        """Names all that the figures depend on."""
        return known.key(self.source, self.settings, type(self.strategy), self.engine, repr(self.strategy))

    def known(self) -> bool:
        """Says whether it has passed earlier."""
        return known.has_passed(self.key)

    def give(self, findings: Sequence[Finding], remember: bool) -> None:
        """Refuses the engine or says that it has passed.

        Args:
            findings: of all ranks.
            remember: note what has passed; on one rank.

        Raises:
            RunError: something is more than rounding.
        """
        if (found := worst(findings)) is not None:
            raise RunError(self._refusal(found), everywhere=True)
        coarse = [one for one in findings if one.what == PLAIN_SCORES and not one.deviation.telling]
        if coarse:
            limit, finer = coarse[0].deviation.mean_limit, "set rollout.engine.dtype=float32"
            log.warning(too_coarse(self.source.path, self.engine, coarse[0].numbers, limit, finer))
        elif remember:
            known.remember(self.key)
        log.info(
            "%s decides, records and scores as PyTorch does (%d positions; %.1f s)",
            self.engine,
            sum(one.deviation.tokens for one in findings if one.what == "tokens"),
            time.perf_counter() - self.started,
        )

    def _refusal(self, found: Finding) -> str:
        return (
            f"{self.engine} does not compute what PyTorch computes for model.path={self.source.path} and "
            f"{type(self.strategy).__name__}: {found}; set rollout=torch, install another version of vLLM, or set "
            "rollout.engine.check=false to continue anyway."
        )
