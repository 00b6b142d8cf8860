"""Wrong arguments of the Python interface: each is refused in one sentence that names it, or taken as what it means."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM

import ngrpo
from ngrpo.entrypoints.sampled_rollout import SampledRollout
from ngrpo.errors import SettingError
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import MODEL_PATH, ModelSource

QUESTION = "What is 3 + 4?"
OTHER = "What is 5 + 6?"
SHORT: dict[str, Any] = {"rollout": {"max_new_tokens": 4}}
MESSAGE = {"role": "user", "content": QUESTION}


@pytest.fixture(scope="module")
def rollout() -> SampledRollout:
    return ngrpo.sample("demo", QUESTION, **SHORT)[0]


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(SettingError) as error:
        call()
    said = str(error.value)
    assert said.isprintable()
    assert said.endswith(".")
    return said


def texts(rollouts: list[SampledRollout]) -> list[str]:
    return [one.text for one in rollouts]


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError


OBJECTS = [None, 3, 0.5, b"demo", [], {}, np.float64(1), torch.tensor(3), torch.nn.Linear(1, 1), object(), Unshowable()]


@pytest.mark.parametrize("model", OBJECTS, ids=lambda one: type(one).__name__)
def test_what_is_no_model_is_refused(model: Any, rollout: SampledRollout) -> None:
    assert refused(lambda: ngrpo.sample(model, QUESTION)).startswith("model=")
    assert refused(lambda: ngrpo.score(model, [rollout])).startswith("model=")


def test_a_model_without_a_head_or_with_a_wrong_tokenizer_is_refused(rollout: SampledRollout) -> None:
    tokenizer = ModelSource().tokenizer()
    headless = AutoModel.from_pretrained(MODEL_PATH)
    assert "predicts no tokens" in refused(lambda: ngrpo.sample(headless, QUESTION, tokenizer=tokenizer))
    model = AutoModelForCausalLM.from_pretrained(MODEL_PATH)
    for wrong in (3, "demo", object()):
        assert refused(lambda: ngrpo.sample(model, QUESTION, tokenizer=wrong)).startswith("tokenizer=")  # noqa: B023
        assert refused(lambda: ngrpo.score(model, [rollout], tokenizer=wrong)).startswith("tokenizer=")  # noqa: B023


@pytest.mark.parametrize(
    "prompts",
    [
        [QUESTION, OTHER],
        (QUESTION, OTHER),
        np.array([QUESTION, OTHER]),
        {QUESTION: 7, OTHER: 11}.keys(),
        [np.array([MESSAGE]), OTHER],
        [[MESSAGE], OTHER],
        [(MESSAGE,), [{"role": "user", "content": [{"type": "text", "text": OTHER}]}]],
    ],
    ids=["list", "tuple", "array", "keys", "array of messages", "mixed", "tuples and parts"],
)
def test_no_prompt_is_left_out(prompts: Any) -> None:
    expected = texts(ngrpo.sample("demo", [QUESTION, OTHER], **SHORT))
    assert texts(ngrpo.sample("demo", prompts, **SHORT)) == expected
    assert texts(ngrpo.sample("demo", (one for one in prompts), **SHORT)) == expected


@pytest.mark.parametrize(
    ("prompts", "named"),
    [
        *[(one, "prompts=") for one in OBJECTS if not isinstance(one, list)],
        ({"role": "user", "content": QUESTION}, "prompts="),
        ({QUESTION}, "prompts="),
        (np.array([[QUESTION, OTHER]]), "prompts="),
        (pd.DataFrame({"prompt": [QUESTION, OTHER]}), "prompts="),
        (Path("x"), "prompts="),
        ([{"rolle": "x"}], "prompts="),
        ([{"role": "assistant", "content": QUESTION}], "prompts="),
        ("\ud800", "prompts="),
        ([MESSAGE, OTHER], "prompts[0]="),
        ([OTHER, MESSAGE], "prompts[1]="),
        *[([OTHER, one], "prompts[1]=") for one in OBJECTS],
        ([OTHER, [MESSAGE, {"role": "user"}]], "prompts[1]="),
        ([OTHER, [[OTHER]]], "prompts[1]="),
        (range(2), "prompts[0]="),
    ],
)
def test_what_is_no_prompt_is_named(prompts: Any, named: str) -> None:
    assert refused(lambda: ngrpo.sample("demo", prompts)).startswith(named)


def test_one_or_several_rollouts_are_scored(rollout: SampledRollout) -> None:
    (expected,) = ngrpo.score("demo", [rollout])
    for given in (rollout, (rollout,), (one for one in [rollout])):
        (score,) = ngrpo.score("demo", given)
        assert score.log_prob.equal(expected.log_prob)
    assert ngrpo.score("demo", []) == []


@pytest.mark.parametrize("wrong", [*OBJECTS[:4], "x", *OBJECTS[5:]], ids=lambda one: type(one).__name__)
def test_what_is_no_rollout_is_named(wrong: Any, rollout: SampledRollout) -> None:
    assert refused(lambda: ngrpo.score("demo", wrong)).startswith("rollouts=")
    assert refused(lambda: ngrpo.score("demo", [rollout, wrong])).startswith("rollouts[1]=")


def test_a_rollout_of_more_tokens_than_the_model_has_is_refused(rollout: SampledRollout) -> None:
    foreign = replace(rollout, response_ids=torch.full_like(rollout.response_ids, 10**6))
    assert refused(lambda: ngrpo.score("demo", [rollout, foreign])).startswith("rollouts[1] has the token 1000000, and")


FUNCTIONS: list[Callable[..., Any]] = [
    ngrpo.train,
    ngrpo.evaluate,
    lambda *given, **settings: ngrpo.sample("demo", QUESTION, *given, **settings),
    lambda *given, **settings: ngrpo.score("demo", [], *given, **settings),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=["train", "evaluate", "sample", "score"])
def test_arguments_that_the_functions_share(function: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for override in (*OBJECTS, "", " ", ["seed=1"], Path("x")):
        assert "give a text such as 'seed=1'" in refused(lambda: function(override))  # noqa: B023
    for folder in (3, b"x", [], "", "a\0b", "/no/such/folder", np.int64(1)):
        assert refused(lambda: function(config_dir=folder)).startswith("config_dir=")  # noqa: B023
    for verbose in (3, "False", None, [], np.array([1, 2])):
        assert refused(lambda: function(verbose=verbose)).startswith("verbose=")  # noqa: B023
    for value in (b"1", {3}, range(3), object(), Unshowable(), "a\0b", 10**5000, np.array([1, 2])):
        assert refused(lambda: function(seed=value)).startswith("seed=")  # noqa: B023
    for group in (3, None, True, ["demo", 3]):
        assert refused(lambda: function(rollout=group)).startswith("rollout=")  # noqa: B023
    for key in ("a b", "", 3.5, None):
        assert "is no name of a setting" in refused(lambda: function(rollout={key: 3}))  # noqa: B023
    assert list(tmp_path.iterdir()) == []


def test_scalars_of_arrays_and_tensors_are_numbers() -> None:
    expected = ngrpo.sample("demo", QUESTION, n=2, seed=3, **SHORT)
    for two, three in ((np.int64(2), np.int32(3)), (torch.tensor(2), torch.tensor(3)), (np.array(2), "3")):
        assert texts(ngrpo.sample("demo", QUESTION, n=two, seed=three, **SHORT)) == texts(expected)  # type: ignore[arg-type]
    assert ngrpo.sample(
        "demo", QUESTION, verbose=np.False_, rollout={"max_new_tokens": 4, "temperature": np.float64(1)}
    )  # type: ignore[arg-type]


def test_a_strategy_is_given_as_an_object() -> None:
    said = refused(lambda: ngrpo.sample("demo", QUESTION, exploration=TokenSampling))  # type: ignore[arg-type]
    assert said.startswith("exploration=TokenSampling is the class of strategies; give one of them")
    for wrong in OBJECTS[:4]:
        assert refused(lambda: ngrpo.sample("demo", QUESTION, exploration=wrong)).startswith("exploration=")  # noqa: B023


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (np.float64(7), np.int64(7)),
        (torch.tensor(7), "7"),
        (Fraction(7, 2), Decimal("3.5")),
        (1e-7, "0.0000001"),
        (np.float32(0.1), 0.1),
        ("0.1", torch.tensor(0.1)),
        (np.array(0.3, np.float16), torch.tensor(0.3, dtype=torch.float16)),
        (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
        (10**400, 10**400),
        (np.str_("7"), np.array(7)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_numbers_of_any_kind_are_compared(gold: Any, answer: Any) -> None:
    assert ngrpo.verify(gold, answer)


@pytest.mark.parametrize(
    "wrong",
    [*OBJECTS[:1], *OBJECTS[3:6], *OBJECTS[8:], True, 1j, float("nan"), Decimal("inf"), 10**5000, "\ud800", Path("7"),
     ["7"], np.array([7, 8]), torch.tensor([7])],
    ids=lambda one: type(one).__name__,
)  # fmt: skip
def test_what_is_no_answer_is_refused(wrong: Any) -> None:
    assert refused(lambda: ngrpo.verify(wrong, "7")).startswith("gold=")
    assert refused(lambda: ngrpo.verify("7", wrong)).startswith("answer=")
