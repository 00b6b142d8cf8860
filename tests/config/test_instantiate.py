"""Typos, wrong types and missing values are refused by name; `build` passes what a target asks for."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException, InstantiationException
from omegaconf import DictConfig, OmegaConf
from places import ROOT

from ngrpo.config.instantiate import build, checked
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


# Targets of the nodes below.


@dataclass(frozen=True)
class Worker:
    name: str = "worker"


@dataclass(frozen=True)
class Inner:
    size: int = 1


@dataclass(frozen=True)
class Outer:
    worker: Worker
    inner: Inner
    rate: float = 0.5
    label: str | None = None
    anything: Any = None


def scaled(value: float, factor: float = 1.0, worker: Worker | None = None) -> tuple[float, Worker | None]:
    return value * factor, worker


def takes_all(**settings: Any) -> dict[str, Any]:
    return settings


def node(**settings: Any) -> DictConfig:
    return OmegaConf.create(settings)


def target(thing: Any) -> str:
    return f"{__name__}.{thing.__name__}"


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
        ("rollout.engine.max_batch_size", "all", "str", "int"),
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


@pytest.mark.parametrize("key", ["trainer.iterations", "exploration.k", "logger"])
def test_missing_value_is_refused(key: str) -> None:
    assert refusal(mixing_with(key, "???")) == f"{key} has no value; set it."


def test_group_taken_away_is_refused() -> None:
    assert refusal(composed("~logger")) == "logger has no value; set it."


def test_broken_interpolation_is_refused() -> None:
    message = refusal(mixing_with("algo.kl_coef", "${nowhere}"))
    assert message == "algo.kl_coef: Interpolation key 'nowhere' not found; change it."


@pytest.mark.parametrize("path", ["ngrpo.nowhere.Thing", "ngrpo.errors.Nothing", "nopackage.Thing"])
def test_target_that_cannot_be_imported_is_refused(path: str) -> None:
    config = mixing_with("exploration._target_", path)
    config.allow_targets = ["nopackage"]
    assert refusal(config).startswith(f"_target_={path} cannot be imported (")


def test_target_with_free_keywords_takes_any_key() -> None:
    config = mixing_with("callbacks.own", {"_target_": target(takes_all), "a": 1})
    config.allow_targets = [__name__]
    assert checked(config).callbacks.own.a == 1


def test_build_passes_available_objects_by_name_and_leaves_others() -> None:
    worker = Worker()
    made = build(node(_target_=target(Outer), inner={"_target_": target(Inner), "size": 3}), worker=worker, seed=7)
    assert made == Outer(worker, Inner(3))
    # The very object: Hydra alone would pass a dictionary or a copy of a dataclass.
    assert made.worker is worker


def test_build_keeps_what_the_node_sets() -> None:
    made = build(
        node(_target_=target(Outer), inner=None, label="own", rate=1),
        worker=Worker(),
        label="other",
        rate=2.0,
    )
    assert (made.label, made.rate) == ("own", 1)


def test_build_turns_containers_into_plain_ones() -> None:
    made = build(node(_target_=target(takes_all), ids=[1, 2], more={"a": [3]}))
    assert made == {"ids": [1, 2], "more": {"a": [3]}}
    assert (type(made["ids"]), type(made["more"])) == (list, dict)


def test_build_of_a_partial_waits_for_the_rest() -> None:
    worker = Worker()
    made = build(node(_target_=target(scaled), _partial_=True, factor=2.0), worker=worker)
    assert made(3.0) == (6.0, worker)


def test_build_of_nested_partials() -> None:
    inner = {"_target_": target(scaled), "_partial_": True, "factor": 3.0}
    made = build(node(_target_=target(Outer), inner=None, anything=inner), worker=Worker())
    assert made.anything(2.0) == (6.0, None)


def test_build_of_an_unknown_target_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^_target_=ngrpo\.nowhere\.Thing cannot be imported"):
        build(node(_target_="ngrpo.nowhere.Thing"))


@dataclass(frozen=True)
class Picky:
    def __post_init__(self) -> None:
        raise SettingError("picky.size=0 is too small; raise it.")


def test_build_shows_the_refusal_of_a_nested_target_as_it_is() -> None:
    with pytest.raises(SettingError) as caught:
        build(node(_target_=target(takes_all), inner={"_target_": target(Picky)}))
    assert str(caught.value) == "picky.size=0 is too small; raise it."


def test_build_leaves_other_faults_of_a_nested_target_to_hydra() -> None:
    with pytest.raises(InstantiationException, match="unexpected keyword argument 'extra'"):
        build(node(_target_=target(takes_all), inner={"_target_": target(Inner), "extra": 1}))


def test_a_target_without_its_required_settings_is_refused_in_one_sentence() -> None:
    with pytest.raises(SettingError) as caught:
        build(OmegaConf.create({"_target_": "ngrpo.algo.policy_loss.Algorithm", "kl_coef": 0.0}))
    assert str(caught.value) == (
        "_target_=ngrpo.algo.policy_loss.Algorithm also needs advantage, ratio, clip, aggregate, kl; choose a preset "
        "that sets them, or add them."
    )
