"""Custom rewards and terms, isolated so that they can neither hang a run nor take it down."""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from ngrpo.config.allowlist import ALLOWED, below
from ngrpo.errors import RunError, SettingError
from ngrpo.rewards.functions.adapters import as_reward, as_term
from ngrpo.rewards.isolation.isolated import LIMIT, CallFailed, IsolatedObject
from ngrpo.rewards.terms.base import Responses
from ngrpo.rewards.terms.calls import build_callable
from ngrpo.rewards.terms.results import numbers
from ngrpo.types.scores import Score

log = logging.getLogger(__name__)


def build_reward(
    setting: str,
    node: DictConfig,
    limit_s: float | None,
    isolated: "Callable[[IsolatedObject], IsolatedTerm | IsolatedReward]",
) -> Any:
    """Builds a reward or a term: in this process if it is the package's, or if there is no limit.

    Args:
        setting: where it is configured, for messages.
        node: its `_target_` node.
        limit_s: most seconds that a call may take.
        isolated: `IsolatedTerm`, `IsolatedReward` or `StrictIsolatedReward`.

    Raises:
        SettingError: it cannot be built, or the limit is no positive number.
    """
    if limit_s is not None and not (math.isfinite(limit_s) and limit_s > 0):
        raise SettingError(f"{LIMIT}={limit_s} is no time to answer in; set a positive number of seconds, or null.")
    own = below(node["_target_"], ALLOWED)
    node = as_term(node) if isolated is IsolatedTerm else as_reward(node)
    if limit_s is None or own:
        return build_callable(node)
    plain = OmegaConf.to_container(node, resolve=True)
    assert isinstance(plain, dict)
    return isolated(IsolatedObject(setting, {str(key): value for key, value in plain.items()}, limit_s))


class IsolatedTerm:
    """A reward term (`ngrpo.rewards.terms.base.Term`) in a process of its own; a failed call gives NaN for all."""

    def __init__(self, isolated: IsolatedObject) -> None:
        self.isolated = isolated

    def __call__(self, responses: Responses) -> Tensor:
        """Returns the term's values, or NaN: its responses are then excluded from what is learned, and counted."""
        try:
            return torch.tensor(numbers(self.isolated(responses), len(responses)), dtype=torch.float64)
        except CallFailed as failure:
            log.warning(
                "%s %s: the rewards of %d responses are excluded", self.isolated.setting, failure, len(responses)
            )
            return torch.full((len(responses),), torch.nan, dtype=torch.float64)

    def state_dict(self) -> dict[str, Any]:
        """Holds the term's state after its last call; nothing if it has none."""
        return self.isolated.state or {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores it."""
        self.isolated.restore(state or None)


class IsolatedReward:
    """A reward (`ngrpo.rewards.protocol.Reward`) in a process of its own; a failed call gives no response a reward."""

    def __init__(self, isolated: IsolatedObject) -> None:
        self.isolated = isolated

    def __call__(self, responses: Sequence[str], references: Sequence[str], **offered: Any) -> Any:
        """Returns its result, or scores of NaN with the verdict that says why, which nothing is learned from."""
        try:
            return self.isolated(responses, references, **offered)
        except CallFailed as failure:
            return self._unjudged(failure, len(responses))

    def _unjudged(self, failure: CallFailed, count: int) -> list[Score]:
        log.warning("%s %s: the rewards of %d responses are excluded", self.isolated.setting, failure, count)
        return [Score(torch.nan, False, None, failure.verdict)] * count

    def state_dict(self) -> dict[str, Any]:
        """Holds the reward's state after its last call; nothing if it has none."""
        return self.isolated.state or {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores it."""
        self.isolated.restore(state or None)

    def close(self) -> None:
        """Ends the process."""
        self.isolated.close()


class StrictIsolatedReward(IsolatedReward):
    """An isolated reward whose failed call raises RunError: for figures that must not count what was not judged."""

    def _unjudged(self, failure: CallFailed, count: int) -> list[Score]:
        raise RunError(
            f"{self.isolated.setting} {failure}; {failure.remedy}; the same command continues with what is not "
            "answered yet."
        ) from failure
