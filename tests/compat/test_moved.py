"""The tables of moved names lead from what is no more to what is there."""

from pathlib import Path
from pkgutil import resolve_name

import pytest
from places import ROOT

from ngrpo.compat.moved import CALLBACKS, MODULES, NAMES, current, moved_out_of

NAMED = Path(__file__).with_name("names_0_1.txt").read_text().split()
"""What version 0.1 named in conf/, README and examples."""

EVERY = MODULES | CALLBACKS | NAMES


@pytest.mark.parametrize("new", sorted(set(EVERY.values())))
def test_every_new_name_leads_to_something(new: str) -> None:
    if ".vllm." in new:  # not to be imported without vLLM
        assert (ROOT / f"{new.replace('.', '/')}.py").is_file()
    else:
        resolve_name(new)


@pytest.mark.parametrize("name", [name for name in NAMED if ".vllm." not in name])
def test_what_was_documented_is_there(name: str) -> None:
    resolve_name(current(name))


def test_nothing_lies_where_something_has_left() -> None:
    places = [ROOT / old.replace(".", "/") for old in MODULES]
    assert [place for place in places if place.with_suffix(".py").exists() or (place / "__init__.py").exists()] == []


def test_nothing_moves_twice() -> None:
    assert {new for new in EVERY.values() if current(new) != new} == set()


def test_names_that_have_not_moved_are_as_they_are() -> None:
    for name in ("ngrpo.rollout.auto.auto_engine", "ngrpo.rewards.terms.one_box.OneBox", "torch.optim.AdamW",
                 "callbacks.Mine", "callbacks.mine.Mine", "callbacks", "Mine", ""):  # fmt: skip
        assert current(name) == name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ngrpo.schedule", "ngrpo.training.optim.lr_schedule"),
        ("ngrpo.schedule.cosine", "ngrpo.training.optim.lr_schedule.cosine"),
        ("ngrpo.loggers.Csv", "ngrpo.loggers.csv.Csv"),
        ("ngrpo.config.build", "ngrpo.config.instantiate.build"),
        ("callbacks.rollout.RolloutCallback", "ngrpo.callbacks.rollout.RolloutCallback"),
        ("ngrpo.demo.problems.Problem.text", "ngrpo.data.word_problems.generator.Problem.text"),
    ],
)
def test_names_in_what_has_moved_follow_it(old: str, new: str) -> None:
    assert current(old) == new


def test_what_has_moved_out_of_a_module_is_known_by_its_names_then_and_now() -> None:
    assert moved_out_of("ngrpo.rewards.math") == {"Score": "ngrpo.types.scores.Score"}
    assert moved_out_of("ngrpo.demo_model")["MODEL_PATH"] == "ngrpo.modeling.loading.MODEL_PATH"
    assert moved_out_of("ngrpo")["schedule"] == "ngrpo.training.optim.lr_schedule"
    assert moved_out_of("ngrpo.algo.clip") == {}
