"""Typos, wrong types and missing values are refused by name."""

from functools import cache
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig, OmegaConf
from places import ROOT

from ngrpo.config.check import checked
from ngrpo.config.schema import Config, EvaluateConfig, register
from ngrpo.errors import SettingError

CONF = ROOT / "conf"


def composed(*overrides: str, root: str = "train") -> DictConfig:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return compose(root, overrides=list(overrides))


@cache
def mixing() -> DictConfig:
    return composed("exploration=neighbor")


def mixing_with(key: str, value: Any) -> DictConfig:
    """The defaults with NeighborMixing and one value changed; composing is slow, changing is not."""
    config = mixing().copy()
    OmegaConf.update(config, key, value, merge=False, force_add=True)
    return config


def refusal(config: DictConfig, schema: type = Config) -> str:
    """The message of `checked`: one sentence on one line."""
    with pytest.raises(SettingError) as caught:
        checked(config, schema)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


def takes_all(**settings: Any) -> dict[str, Any]:
    return settings


def test_defaults_pass_and_are_resolved() -> None:
    config = checked(composed())
    assert config.rollout.group_size == 8
    assert checked(composed("model.path=other")).rollout.group_size == 4
    assert checked(composed(root="evaluate"), EvaluateConfig).evaluator.samples == 32
    assert "${" not in str(OmegaConf.to_container(config, resolve=False))


@pytest.mark.parametrize(
    "key", ["nothing", "trainer.iteratons", "rollout.group_sise", "exploration.topk", "algo.clip.hihg"]
)
def test_unknown_key_is_refused_with_and_without_plus(key: str) -> None:
    with pytest.raises(ConfigCompositionException, match=key):
        composed(f"{key}=1")
    assert key in refusal(composed(f"+{key}=1"))


@pytest.mark.parametrize(
    "key",
    ["rollout.engine.batch", "callbacks.evaluation.evaluator.sampels", "trainer.optimizer.learning_rate"],
)
def test_unknown_key_deep_in_a_target_names_the_known_ones(key: str) -> None:
    message = refusal(mixing_with(key, 1))
    assert message.startswith(f"{key}=1 is not a setting of ")
    assert "; it has " in message


def test_unknown_key_of_evaluate_is_refused() -> None:
    assert "threds" in refusal(composed("+threds=1", root="evaluate"), EvaluateConfig)
    assert "evaluator.k" in refusal(composed("+evaluator.k=1", root="evaluate"), EvaluateConfig)


@pytest.mark.parametrize(
    "override", ["trainer.iterations=many", "trainer.iterations=1.5", "rollout.temperature=hot", "seed=x"]
)
def test_wrong_type_in_a_typed_group_is_refused_by_hydra(override: str) -> None:
    with pytest.raises(ConfigCompositionException, match=override):
        composed(override)


@pytest.mark.parametrize(
    ("key", "value", "found", "wanted"),
    [
        ("exploration.rate", "often", "str", "float"),
        ("exploration.rate", True, "bool", "float"),
        ("exploration.k", 2.5, "float", "int"),
        ("exploration.k", True, "bool", "int"),
        ("exploration.k", [3], "ListConfig", "int"),
        ("exploration.end_token", 7, "int", "str | None"),
        ("rollout.engine.max_batch_size", "all", "str", "int | None"),
        ("algo.advantage.eps", "tiny", "str", "float"),
        ("callbacks.checkpoint.keep", None, "NoneType", "int"),
    ],
)
def test_wrong_type_in_a_target_is_refused(key: str, value: Any, found: str, wanted: str) -> None:
    message = refusal(mixing_with(key, value))
    assert message.startswith(f"{key}={value} is of type {found}, and ")
    assert f" takes {wanted}; " in message


@pytest.mark.parametrize(
    ("key", "value"), [("exploration.rate", 1), ("exploration.end_token", None), ("callbacks.export", None)]
)
def test_values_that_fit_pass(key: str, value: Any) -> None:
    assert OmegaConf.select(checked(mixing_with(key, value)), key) == value


@pytest.mark.parametrize("key", ["trainer.iterations", "exploration.k", "reward"])
def test_missing_value_is_refused(key: str) -> None:
    assert refusal(mixing_with(key, "???")) == f"{key} has no value; set it."


def test_group_taken_away_is_refused() -> None:
    assert refusal(composed("~reward")) == "reward has no value; set it."


def test_broken_interpolation_is_refused() -> None:
    message = refusal(mixing_with("algo.kl_coef", "${nowhere}"))
    assert message == "algo.kl_coef: Interpolation key 'nowhere' not found; change it."


@pytest.mark.parametrize("path", ["ngrpo.nowhere.Thing", "ngrpo.errors.Nothing", "nopackage.Thing"])
def test_target_that_cannot_be_imported_is_refused(path: str) -> None:
    config = mixing_with("exploration._target_", path)
    config.allow_targets = ["nopackage"]
    assert refusal(config).startswith(f"_target_={path} cannot be imported (")


def test_target_with_free_keywords_takes_any_key() -> None:
    config = mixing_with("callbacks.own", {"_target_": f"{__name__}.takes_all", "a": 1})
    config.allow_targets = [__name__]
    assert checked(config).callbacks.own.a == 1
