"""Arbitrary rows, answers and settings: refused or used, but never an error of the program, and never a hang."""

import json
import os
import resource
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf
from places import ROOT

from ngrpo.config.schema import register
from ngrpo.data.datamodule import PromptDataModule
from ngrpo.entrypoints.error_handling import sentence
from ngrpo.entrypoints.train import train
from ngrpo.modeling.loading import ModelSource
from ngrpo.rewards.math import MathReward
from ngrpo.types.scores import Verdict
from ngrpo.utils.out_of_memory import out_of_memory

pytestmark = pytest.mark.faults
CONF = ROOT / "conf"
RELAXED = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True, "database": None}

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
ROW = st.dictionaries(st.sampled_from(["problem", "answer", "difficulty", "other"]), VALUES) | VALUES

PIECES = [
    r"\frac", "{", "}", "1", "2", "x", "^", "_", r"\sqrt", "(", ")", ",", r"\pi", "=", "<", r"\begin{pmatrix}", "&",
    r"\\", r"\end{pmatrix}", r"\text{cm}", "%", "[", "]", r"\infty", "9^9^9", "!", r"\left", r"\right|", r"\boxed{",
    "-", ".", "e5", r"\int", r"\sum", r"\lim", "10^{10^{10}}",
]  # fmt: skip
LATEX = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
ANSWERS = st.text(max_size=60) | LATEX


def told(error: Exception) -> None:
    """The user is shown one line, before memory runs out."""
    said = sentence(error)
    if said is None or out_of_memory(error):
        raise error
    assert said.isprintable()


@cache
def tokenizer() -> Any:
    return ModelSource().tokenizer()


@given(rows=st.lists(ROW, max_size=5), jsonl=st.booleans())
@settings(max_examples=800, **RELAXED)
def test_rows(rows: list[Any], jsonl: bool) -> None:
    file = Path(os.environ["NGRPO_CACHE"]) / ("rows.jsonl" if jsonl else "rows.json")
    file.parent.mkdir(exist_ok=True)
    text = "\n".join(map(json.dumps, rows)) if jsonl else json.dumps(rows)
    file.write_text(text, errors="surrogatepass" if text.isascii() else "strict")
    try:
        PromptDataModule(tokenizer=tokenizer(), prompts_per_batch=1, seed=0, path=str(file), eval_path=str(file))
    except Exception as error:
        told(error)


@pytest.fixture(scope="module")
def reward() -> Iterator[MathReward]:
    made = MathReward(timeout_s=2.0, workers=2)
    yield made
    made.close()


@given(reference=ANSWERS, answers=st.lists(ANSWERS, min_size=1, max_size=3))
@settings(max_examples=700, **RELAXED)
def test_answers(reference: str, answers: list[str], reward: MathReward) -> None:
    responses = [f"so \\boxed{{{answer}}}" for answer in answers]
    for score in reward(responses, [reference] * len(responses)):
        assert score.status in Verdict
        assert score.correct == (score.status is Verdict.CORRECT)


@cache
def defaults() -> DictConfig:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        overrides = ["exploration=neighbor", "trainer=cpu", "data.eval_problems=1", "trainer.threads=1"]
        return compose("train", overrides=overrides)


def leaves(node: Any, path: str = "") -> Iterator[str]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from leaves(value, f"{path}.{key}".lstrip("."))
    else:
        yield path


class Accepted(BaseException):
    """Everything was accepted."""


# Of the endless demo as many problems are made as are asked for, and a number of threads is taken as it is.
TAKEN_AT_ITS_WORD = {"data.eval_problems", "trainer.threads"}
KEYS = sorted(set(leaves(OmegaConf.to_container(defaults()))) - TAKEN_AT_ITS_WORD)
LIKELY = st.sampled_from(
    [0, 1, -1, 2, 3, 4, 0.5, 1e9, "", "auto", "x", "demo", None, [], [1], ["x"], {}, {"a": 1}, True]
)


@pytest.fixture(scope="module")
def little_memory() -> Iterator[None]:
    """What a setting makes the program allocate is refused, not the next program's memory."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**32, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("little_memory")
@given(changes=st.dictionaries(st.sampled_from(KEYS), LIKELY | SCALARS, min_size=1, max_size=2))
@settings(max_examples=500, **RELAXED)
def test_settings(changes: dict[str, Any]) -> None:
    config = defaults().copy()
    # Up to the trainer, which would start the processes that a setting may ask for.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ngrpo.entrypoints.train.make_trainer", _accepted)
        try:
            for key, value in changes.items():
                OmegaConf.update(config, key, value, merge=False, force_add=True)
            train(config, Path(os.environ["NGRPO_CACHE"]) / "run", {"algo": "grpo"}, Path("outputs"))
        except Accepted:
            pass
        except Exception as error:
            told(error)


def _accepted(*arguments: Any) -> None:
    raise Accepted
