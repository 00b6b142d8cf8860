"""Every number of the shipped configuration with values that cannot be meant: accepted with sense, refused by name."""

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from places import ROOT

from ngrpo.config.instantiate import build
from ngrpo.config.ranges import LARGEST, check_finite, check_sizes
from ngrpo.config.schema import TrainerConfig, register
from ngrpo.entrypoints.input_validation import check_end_token, check_hardware
from ngrpo.entrypoints.validation import check_clip, check_group
from ngrpo.errors import SettingError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.soft import SoftThinking
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.settings import RolloutSettings

CONF = str(ROOT / "conf")
TERMS = "reward_terms=[format,overlong,repetition,count_bonus,stated_answer]"
COMPOSED = {
    "ppo": ["algo=ppo", "exploration=neighbor", TERMS, "trainer=cpu", "critic=value_head"],
    "copo": ["algo=copo", "exploration=gumbel", "data/curriculum=rising_difficulty", "trainer=gpu"],
    "hrpo": ["algo=reinforce_pp", "exploration=hrpo", "data/curriculum=sampled_by_pass_rate"],
    "soft": ["algo=dapo", "exploration=soft", "selection=mixed_outcomes", "rollout=torch"],
    "gaussian": ["algo=ngrpo", "exploration=gaussian_top_k", "algo/correction=mask"],
    "min_p": ["algo=w_reinforce", "exploration=min_p"],
    "token": ["algo=gspo", "exploration=token", "algo/correction=truncate", "algo/bonus=ucb"],
}
BUILT = ("algo", "exploration", "selection", "reward", "evaluator")
"""Groups whose parts need nothing of a run."""


@cache
def composed(name: str) -> DictConfig:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=CONF):
        return compose("evaluate") if name == "evaluate" else compose("train", overrides=COMPOSED[name])


def numbers(node: DictConfig, path: str = "") -> Iterator[tuple[str, float]]:
    for key in node:
        value = None if OmegaConf.is_missing(node, key) else node[key]
        where = f"{path}.{key}".lstrip(".")
        if isinstance(value, DictConfig):
            yield from numbers(value, where)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield where, value


def texts(node: DictConfig, path: str = "") -> Iterator[str]:
    for key in node:
        value = None if OmegaConf.is_missing(node, key) else node[key]
        where = f"{path}.{key}".lstrip(".")
        if isinstance(value, DictConfig):
            yield from texts(value, where)
        elif isinstance(value, str) and value:
            yield where


def changed(name: str, path: str, value: Any) -> DictConfig:
    config = composed(name).copy()
    OmegaConf.set_struct(config, False)
    OmegaConf.update(config, path, value)
    return config


def tried(config: DictConfig, path: str) -> str | None:
    """Returns the sentence that refuses a configuration, None if nothing does; anything but a sentence passes."""
    try:
        check_sizes(config)
        group = path.partition(".")[0]
        if group in BUILT and group in config:
            build(config[group])
        check_finite(config)
    except SettingError as refused:
        return str(refused)
    return None


@pytest.mark.parametrize("name", [*COMPOSED, "evaluate"])
def test_numbers_that_cannot_be_meant_are_refused_by_name(name: str) -> None:
    for path, shipped in numbers(composed(name)):
        assert tried(composed(name), path) is None
        for value in (math.nan, math.inf, -math.inf, -1, 0, 10**9):
            if isinstance(shipped, int) and isinstance(value, float):
                continue  # refused by its type
            said = tried(changed(name, path, type(shipped)(value)), path)
            assert said is not None or math.isfinite(value), (path, value)
            if said is not None:
                last = path.rpartition(".")[2]
                assert last in said, (path, value, said)
                assert said.endswith("."), said
                assert "\n" not in said, said


PARTS = [
    (group.name, choice.stem)
    for group in sorted((ROOT / "conf" / "algo").iterdir())
    if group.is_dir()
    for choice in sorted(group.glob("*.yaml"))
    if choice.stem != "custom"
]
MAY_BE_NEGATIVE = {"bonus.less", "advantage.right", "advantage.wrong", "token_weight.low"}
"""Numbers of an algorithm's parts: what is subtracted, rewards, and a bound of covariances."""


def made_and_checked(config: DictConfig) -> None:
    check_finite(config)
    made = build(config.algo)
    check_clip(made)
    check_group(made, RolloutSettings(group_size=8))


@pytest.mark.parametrize(("group", "choice"), PARTS)
def test_what_a_part_of_an_algorithm_cannot_mean_is_refused_by_name(group: str, choice: str) -> None:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=CONF):
        config = compose("train", overrides=["algo=grpo", f"algo/{group}={choice}"])
    node = config.algo[group]
    for name, shipped in numbers(node) if isinstance(node, DictConfig) else ():
        path = f"{group}.{name}"
        values = (-1.0, math.nan) if isinstance(shipped, float) else (-1,)
        for value in values[path in MAY_BE_NEGATIVE :]:
            changed_part = config.copy()
            OmegaConf.set_struct(changed_part, False)
            OmegaConf.update(changed_part, f"algo.{path}", type(shipped)(value))
            with pytest.raises(SettingError, match=rf"{name.rpartition('.')[2]}.*\.$"):
                made_and_checked(changed_part)


@pytest.mark.parametrize("name", ["ppo", "evaluate"])
def test_texts_that_were_left_empty_are_refused_by_name(name: str) -> None:
    for path in texts(composed(name)):
        if path.endswith(("_target_", "_convert_", "prefix", "suffix", "version", "system_prompt")):
            continue
        with pytest.raises(SettingError, match=rf"{path}='' is empty"):
            check_sizes(changed(name, path, ""))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("data.path", ""),
        ("trainer.threads", 1_000_000),
        ("algo.clip.low", 2.0),
        ("rollout.group_size", 10**9),
        ("data.eval_problems", 10**9),
        ("trainer.optimizer.lr", 1e9),
        ("reward_terms.format.weight", 1e9),
    ],
)
def test_what_was_accepted_once_is_refused(path: str, value: Any) -> None:
    with pytest.raises(SettingError, match=f"^{path}="):
        check_sizes(changed("ppo", path, value))


@pytest.mark.parametrize("weight", [math.nan, math.inf, -math.inf])
def test_weights_of_terms_are_numbers(weight: float) -> None:
    with pytest.raises(SettingError, match=r"^reward_terms\.format\.weight="):
        check_finite(changed("ppo", "reward_terms.format.weight", weight))


def test_a_users_own_part_may_have_any_numbers() -> None:
    config = composed("ppo").copy()
    OmegaConf.set_struct(config, False)
    config.exploration = {"_target_": "my_module.Mine", "rate": math.inf, "k": 10**12, "name": ""}
    check_sizes(config)
    check_finite(config)


def test_every_limit_stands_for_a_setting_that_there_is() -> None:
    from fnmatch import fnmatchcase

    known = {path for name in (*COMPOSED, "evaluate") for path, _ in numbers(composed(name))}
    assert {pattern for pattern in LARGEST if not any(fnmatchcase(path, pattern) for path in known)} == set()


def test_a_cpu_does_not_run_a_thousand_processes() -> None:
    config = TrainerConfig(accelerator="cpu", devices=1000, num_nodes=1)
    with pytest.raises(SettingError, match=r"^trainer\.devices=1000 is more than the \d+ cores of this machine"):
        check_hardware(config)
    check_hardware(TrainerConfig(accelerator="cpu", devices=2, num_nodes=1))


def test_an_end_token_of_ones_own_must_exist() -> None:
    tokenizer = ModelSource().tokenizer()
    check_end_token(NeighborMixing(end_token=None), tokenizer)
    check_end_token(NeighborMixing(), tokenizer)
    check_end_token(SoftThinking(end_token=next(iter(tokenizer.get_added_vocab()))), tokenizer)
    with pytest.raises(SettingError, match=r"^exploration\.end_token='<end>' is none of the tokens"):
        check_end_token(SoftThinking(end_token="<end>"), tokenizer)
