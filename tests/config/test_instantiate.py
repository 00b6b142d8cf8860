"""`build` makes what a node names, and passes what a target asks for."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from ngrpo.config.instantiate import build, build_kind
from ngrpo.errors import SettingError


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


class Unfinished(ABC):
    @abstractmethod
    def step(self) -> None: ...


def test_a_class_that_leaves_a_method_open_is_refused_by_the_methods_name() -> None:
    with pytest.raises(SettingError, match=r"^_target_=.*\.Unfinished is a class without step, which its base class"):
        build(node(_target_=target(Unfinished)))


def test_an_object_of_another_kind_is_refused_with_the_kind() -> None:
    assert build_kind(Inner, node(_target_=target(Inner))) == Inner()
    with pytest.raises(
        SettingError, match=rf"^_target_=.*\.Worker makes a Worker; name a class of {__name__}.Inner, or"
    ):
        build_kind(Inner, node(_target_=target(Worker)))


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
    with pytest.raises(
        SettingError, match=r"^_target_=.* cannot be used \(.*unexpected keyword argument 'extra'.*\); give another"
    ):
        build(node(_target_=target(takes_all), inner={"_target_": target(Inner), "extra": 1}))


def by_position(size: int, /, every: int = 1) -> tuple[int, int]:
    return size, every


@pytest.mark.parametrize("given", [{"size": 3}, {}], ids=["a setting", "a part"])
def test_parameters_by_position_only_are_refused_with_the_remedy(given: dict[str, int]) -> None:
    made = node(_target_=target(by_position), **given)
    for outer in (made, node(_target_=target(takes_all), inner={**made, "size": 3})):
        with pytest.raises(SettingError, match=r"by_position takes size by position only, .*; take the / out of its"):
            build(outer, size=7)


def test_a_nested_target_without_its_required_settings_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^_target_=.*scaled also needs value; choose a preset"):
        build(node(_target_=target(takes_all), inner=[{"_target_": target(scaled)}]))


class Broken:
    def __init__(self) -> None:
        raise KeyError("a typing error of the author")


def test_an_exception_of_a_nested_targets_own_passes_as_it_is() -> None:
    with pytest.raises(KeyError, match="a typing error of the author"):
        build(node(_target_=target(takes_all), inner={"_target_": target(Broken)}))


def test_a_target_without_its_required_settings_is_refused_in_one_sentence() -> None:
    with pytest.raises(SettingError) as caught:
        build(OmegaConf.create({"_target_": "ngrpo.algo.policy_loss.Algorithm", "kl_coef": 0.0}))
    assert str(caught.value) == (
        "_target_=ngrpo.algo.policy_loss.Algorithm also needs advantage, ratio, clip, aggregate, kl; choose a preset "
        "that sets them, or add them."
    )


def test_what_hydra_refuses_to_call_is_one_sentence() -> None:
    with pytest.raises(SettingError, match=r"^_target_=os.system cannot be used \(.*\); give another\.$") as refused:
        build(node(_target_="os.system", _partial_=True))
    assert "\n" not in str(refused.value)
