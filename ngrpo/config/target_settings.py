"""The settings that build something, and the parts that fit each of them."""

from typing import Any

from omegaconf import DictConfig, OmegaConf

from ngrpo.config.allowlist import below
from ngrpo.errors import SettingError

_NODES = {
    "train": (
        "model", "data", "reward", "algo", "selection", "exploration", "rollout.engine",
        "rollout.scheduler", "trainer.optimizer", "trainer.schedule",
    ),
    "evaluate": ("model", "reward", "evaluator", "rollout.engine"),
    "sample": ("model", "exploration", "rollout.engine"),
    "serve": ("model", "exploration", "rollout.engine"),
}  # fmt: skip
"""Settings that name what they build, by script."""

_OWN = {"train": "trainer", "evaluate": "evaluator", "sample": "n", "serve": "server"}
"""A setting that those before do not have, by script."""

_HOMES = {
    "algo": ("ngrpo.algo.policy_loss",),
    "algo.advantage": ("ngrpo.algo.advantage", "ngrpo.algo.subsets"),
    "algo.ratio": ("ngrpo.algo.ratio",),
    "algo.clip": ("ngrpo.algo.clip",),
    "algo.aggregate": ("ngrpo.algo.aggregate",),
    "algo.kl": ("ngrpo.algo.kl",),
    "algo.credit": ("ngrpo.algo.credit", "ngrpo.algo.consistency", "ngrpo.algo.first_token", "ngrpo.algo.tree_credit"),
    "algo.correction": ("ngrpo.algo.correction",),
    "algo.adaptive_entropy": ("ngrpo.algo.adaptive_entropy",),
    "algo.within_group": ("ngrpo.algo.within_group",),
    "algo.bonus": ("ngrpo.algo.outcome_bonus",),
    "algo.token_weight": ("ngrpo.algo.token_weight",),
    "exploration": ("ngrpo.exploration",),
    "rollout.scheduler": ("ngrpo.rollout.scheduling",),
    "evaluator.exploration": ("ngrpo.exploration",),
    "trainer.schedule": ("ngrpo.training.optim.lr_schedule",),
}
"""Where the parts are that fit a setting: two functions of the same types may mean different things."""


def check_targets_set(config: DictConfig) -> None:
    """What builds something must say what: every group, and everything that is listed by name.

    Raises:
        SettingError: a setting builds nothing.
    """
    places = list(_NODES[next(script for script, own in _OWN.items() if own in config)])
    places += ["critic"] if config.get("critic") is not None else []
    for group in ("callbacks", "logger"):
        places += [f"{group}.{key}" for key, node in config.get(group, {}).items() if node is not None]
    places += [f"reward_terms.{key}.term" for key in config.get("reward_terms", {})]
    for place in places:
        node = OmegaConf.select(config, place)
        if not _is_target(node):
            raise SettingError(f"{place}={node} builds nothing; choose a file of conf/{place.partition('.')[0]}.")


def check_targets_fit(config: DictConfig) -> None:
    """A part of this program must be one of its setting's; a user's own is the user's affair.

    Raises:
        SettingError: it is one of another setting's.
    """
    for place, homes in _HOMES.items():
        target = OmegaConf.select(config, f"{place}._target_")
        if isinstance(target, str) and below(target, ("ngrpo",)) and not below(target, homes):
            raise SettingError(
                f"{place}._target_={target} is made for another setting; choose a part of {' or '.join(homes)}."
            )


def _is_target(node: Any) -> bool:
    return isinstance(node, DictConfig) and isinstance(node.get("_target_"), str)
