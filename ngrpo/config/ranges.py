"""The ranges of numbers in a configuration; narrower ones are the classes' own."""

import math
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from omegaconf import DictConfig, ListConfig

from ngrpo.config.allowlist import ALLOWED, below
from ngrpo.errors import SettingError

LARGEST: dict[str, float] = {
    "*threads": 1024,
    "trainer.num_nodes": 100_000,
    "trainer.optimizer.lr": 10.0,
    "critic.optimizer.lr": 10.0,
    "*optimizer.weight_decay": 1000.0,
    "rollout.group_size": 65_536,
    "rollout.temperature": 1000.0,
    "*evaluator.temperature": 1000.0,
    "*max_batch_size": 65_536,
    "algo.prompts_per_batch": 1_000_000,
    "algo.clip.low": 1.0,
    "algo.bonus.coef": 1e6,
    "algo.kl_coef": 1e6,
    "algo.entropy_coef": 1e6,
    "critic.clip": 1e6,
    "reward.timeout_s": 1e6,
    "custom_reward_timeout_s": 1e6,
    "reward_terms.*.weight": 1e6,
    "selection.max_refills": 1000,
    "data.eval_problems": 100_000,
    "benchmark.*.problems": 100_000,
    "*evaluator.samples": 65_536,
    "n": 65_536,
    "problems_at_once": 1_000_000,
    "callbacks.rollout_report.rollouts": 100_000,
}
"""By setting, with * for any characters. Above, the machine has no room, threads or years, or the number undoes what it
is for: a ratio's lower bound of 1 - 2 bounds nothing."""

_SEEDS = 2**32
"""NumPy takes 32 bits."""

_EMPTY = ("*version", "*prefix", "*suffix", "*system_prompt", "*instruction")
"""Texts that may be empty."""


def check_sizes(config: DictConfig) -> None:
    """Refuses what no part could be built from: numbers beyond `LARGEST`, seeds, and texts that ``name=`` left empty.

    Raises:
        SettingError: names setting and value.
    """
    for path, value in _leaves(config, ""):
        limit = next((most for pattern, most in LARGEST.items() if fnmatchcase(path, pattern)), math.inf)
        if _is_number(value) and limit < value < math.inf:
            raise SettingError(f"{path}={value} is more than {limit:g}, the most that makes sense; lower it.")
        if value == "" and not any(fnmatchcase(path, pattern) for pattern in _EMPTY):
            raise SettingError(f"{path}='' is empty; write what it should be, or leave it out.")
    if not 0 <= config.get("seed", 0) < _SEEDS:
        raise SettingError(f"seed={config.seed} is not in [0, {_SEEDS}); choose another.")


def check_finite(config: DictConfig) -> None:
    """Refuses NaN and infinities that no part has refused with words of its own.

    Raises:
        SettingError: names setting and value.
    """
    for path, value in _leaves(config, ""):
        if _is_number(value) and not math.isfinite(value):
            raise SettingError(f"{path}={value} is no finite number; set one.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yields settings and values, but for those of a user's own parts, which know best."""
    if isinstance(node, ListConfig):
        for index, child in enumerate(node):
            yield from _leaves(child, f"{path}.{index}")
    elif isinstance(node, DictConfig):
        target = node.get("_target_")
        if not isinstance(target, str) or below(target, ALLOWED):
            for key, child in node.items():
                yield from _leaves(child, f"{path}.{key!s}".lstrip("."))
    else:
        yield path, node
