"""What is measured on the untrained model, in one call or several."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from places import ROOT

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.random import request_key
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.rewards.math import MathReward
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.study import probing
from ngrpo.study.effect import effect
from ngrpo.study.probing import effects, speeds
from ngrpo.study.results import Effect, Speed
from ngrpo.study.scheduler import Deadline
from ngrpo.study.untrained import Strategy, UntrainedModel, load_untrained

PROMPTS = [(5, 6), (5, 6), (7, 8, 9)]
ENOUGH, NONE = Deadline(), Deadline.after(0.0)
CONF = ROOT / "conf"


@pytest.fixture
def subject(make_engine: Callable[[], TorchEngine], tiny_source: ModelSource) -> UntrainedModel:
    engine, tokenizer = make_engine(), tiny_source.tokenizer()

    def worker(strategy: Exploration) -> RolloutWorker:
        return RolloutWorker(engine, tokenizer, MathReward(), strategy, RolloutSettings(1, 6, 1.0), (3,), seed=0)

    plain = Strategy(("token_grpo", "token_gspo"), worker(TokenSampling()))
    mixed = Strategy(("neighbor_grpo",), worker(NeighborMixing(rate=0.5)))
    return UntrainedModel((plain, mixed), PROMPTS, torch.device("cpu"))


class Counter:
    """Counts the batches of an engine."""

    def __init__(self, subject: UntrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[list[int]] = []
        engine = subject.strategies[0].worker.engine
        generate = engine.generate

        def counted(requests, *rest):
            self.batches.append([request.key for request in requests])
            return generate(requests, *rest)

        monkeypatch.setattr(engine, "generate", counted)


def test_rounds_are_measured_after_one_that_warms_up(subject: UntrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    counter, kept = Counter(subject, monkeypatch), []
    assert speeds(subject, 3, {}, ENOUGH, lambda found: kept.append(dict(found)))
    assert [len(found.get("token_grpo", Speed([], 0, "")).tokens_per_s) for found in kept] == [0, 1, 2, 3]
    found = kept[-1]
    assert found["token_grpo"] == found["token_gspo"] != found["neighbor_grpo"]
    assert found["token_grpo"].device == "cpu"
    keys = [[request_key(0, number, n) for n in range(3)] for number in range(4)]
    assert counter.batches == [batch for batch in keys for _ in subject.strategies]
    last = subject.strategies[0].worker
    made = last.engine.generate([*map(probing.Request, PROMPTS, keys[3])], last.sampling, last.bound)
    assert found["token_grpo"].tokens == sum(rollout.length for rollout in made)


def test_a_later_call_measures_the_missing_rounds(subject: UntrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Mapping[str, Speed]] = []
    earlier = {arm: Speed([1.0, 2.0], 7, "cpu") for arm in ("token_grpo", "token_gspo", "neighbor_grpo")}
    counter = Counter(subject, monkeypatch)
    assert not speeds(subject, 3, earlier, NONE, kept.append)
    assert counter.batches == kept == []
    assert speeds(subject, 3, earlier, ENOUGH, kept.append)
    assert len(counter.batches) == 2 * 2
    assert kept[-1]["token_grpo"].tokens_per_s[:2] == [1.0, 2.0]
    assert {len(one.tokens_per_s) for one in kept[-1].values()} == {3}
    other = {arm: Speed([1.0, 2.0], 7, "another") for arm in earlier}
    assert speeds(subject, 1, other, ENOUGH, kept.append)
    assert kept[-1]["token_grpo"].device == "cpu"
    assert len(kept[-1]["token_grpo"].tokens_per_s) == 1


def test_effects_are_measured_once_a_strategy(subject: UntrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Mapping[str, Effect | None]] = []
    assert effects(subject, {}, ENOUGH, kept.append)
    found = kept[-1]
    assert list(found) == ["token_grpo", "token_gspo", "neighbor_grpo"]
    assert found["token_grpo"] is found["token_gspo"] is None
    keys = [request_key(0, number) for number in range(3)]
    assert found["neighbor_grpo"] == effect(subject.strategies[1].worker, PROMPTS, keys)

    counter = Counter(subject, monkeypatch)
    assert effects(subject, found, ENOUGH, kept.append)
    assert counter.batches == []
    plain = dict.fromkeys(("token_grpo", "token_gspo"))
    assert not effects(subject, plain, NONE, kept.append)
    assert counter.batches == []
    assert effects(subject, plain, ENOUGH, kept.append)
    assert kept[-1] == found


def test_arms_that_differ_in_their_algorithm_alone_share_a_strategy(tiny_model_path: Path) -> None:
    common = [f"model.path={tiny_model_path}", "data=demo_hard", "rollout=torch", "trainer.accelerator=cpu"]
    arms = {
        "token_grpo": [*common, "exploration=token", "algo=grpo"],
        "neighbor_gspo": [*common, "exploration=neighbor", "algo=gspo"],
        "neighbor_rare": [*common, "exploration=neighbor", "exploration.rate=0.01", "algo=grpo"],
        "token_gspo": [*common, "exploration=token", "algo=gspo"],
    }
    found = load_untrained(CONF, arms, problems=2, samples=3)
    assert [one.arms for one in found.strategies] == [
        ("token_grpo", "token_gspo"), ("neighbor_gspo",), ("neighbor_rare",)
    ]  # fmt: skip
    assert len(found.prompts) == 6
    assert found.prompts[0] == found.prompts[2] != found.prompts[3]
