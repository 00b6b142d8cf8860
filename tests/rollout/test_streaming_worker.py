"""Training batches of an engine that takes further requests while it runs others: those of one that does not."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from types import MethodType
from typing import Any

import pytest
import torch
from fake_run import Module, trainer

from ngrpo.callbacks.rollout import RolloutCallback
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.dynamic_sampling import DynamicSampling, mixed_outcomes
from ngrpo.rollout.engine import Report, StreamingEngine
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.training.run_length import RunLength
from ngrpo.types.experience import Experience
from ngrpo.types.problems import Problem, Prompt, PromptBatch
from ngrpo.types.rollouts import Request, Rollout, Sampling
from ngrpo.types.scores import Score, Verdict

SETTINGS = RolloutSettings(group_size=3, max_new_tokens=6, temperature=1.0)


class Stream:
    """Makes requests when they are added, and finishes them in a random order."""

    def __init__(self, make: Callable[[Sequence[Request]], list[Rollout]], fail_after: float) -> None:
        self._make, self._fails_after, self._random = make, fail_after, random.Random(4)
        self._made: list[Rollout] = []
        self._running: list[int] = []

    def add(self, requests: Sequence[Request]) -> None:
        self._running += range(len(self._made), len(self._made) + len(requests))
        self._made += self._make(requests)

    def wait(self) -> list[int]:
        self._fails_after -= 1
        if self._fails_after < 0:
            raise RuntimeError("a broken engine")
        self._random.shuffle(self._running)
        done, self._running = self._running[:2], self._running[2:]
        return done

    def rollouts(self, numbers: Sequence[int]) -> list[Rollout]:
        return [self._made[number] for number in numbers]


def streaming(engine: TorchEngine, streams: list[str], fail_after: float = float("inf")) -> TorchEngine:
    """Gives an engine a stream; the first one fails after so many waits."""
    failures = [fail_after]

    @contextmanager
    def stream(
        self: TorchEngine, sampling: Sampling, exploration: BoundExploration, at_once: int, report: Report | None = None
    ) -> Iterator[Stream]:
        streams.append("opened")
        yield Stream(
            lambda requests: self.generate(requests, sampling, exploration),
            failures.pop() if failures else float("inf"),
        )

    engine.stream = MethodType(stream, engine)  # type: ignore[attr-defined]
    return engine


class OddTokens:
    """A response is right when the number of its characters is odd."""

    def __call__(self, responses: Sequence[str], references: Sequence[str]) -> list[Score]:
        right = [len(text) % 2 == 1 for text in responses]
        return [Score(float(r), r, str(r), Verdict.CORRECT if r else Verdict.WRONG) for r in right]

    def close(self) -> None:
        """Has nothing to free."""


class Counting(OddTokens):
    """Has a state, and so must be called in a fixed order."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Policy(Module):
    """A module whose weights are the engine's own."""

    @property
    def weights(self) -> "Policy":
        return self

    def learned_exploration(self) -> dict[str, torch.Tensor]:
        return {}

    def named_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self.engine.lm.named_parameters()


@pytest.fixture
def trained_on(tiny_source: ModelSource) -> Callable[..., tuple[Experience, Policy, int]]:
    def run(
        engine: TorchEngine, max_refills: int = 20, reward: OddTokens | None = None, drawn_at_most: int = 999
    ) -> Any:
        worker = RolloutWorker(
            engine, tiny_source.tokenizer(), reward or OddTokens(), NeighborMixing(rate=0.5), SETTINGS, (3,), seed=0
        )
        numbers, module = count(), Policy()
        module.engine = engine

        def draw(number: int) -> list[Prompt]:
            nonlocal drawn_at_most
            drawn_at_most -= number
            if drawn_at_most < 0:
                raise OSError("the reader was killed")
            return [Prompt(Problem(key, "", ""), (2, 6 + key % 20, 7, 3)) for key in islice(numbers, number)]

        batch = PromptBatch(draw(8), 0, 0, draw)
        callback = RolloutCallback(worker, RunLength(1), DynamicSampling(mixed_outcomes, max_refills))
        callback.on_train_batch_start(trainer(), module, batch, 0)
        return batch.experience, module.logged, next(numbers)

    return run


def texts(experience: Experience) -> list[tuple[int, str]]:
    return list(zip(experience.keys, experience.texts, strict=True))


@pytest.mark.parametrize("max_refills", [1, 2, 20])
def test_the_batch_is_that_of_rounds(make_engine, trained_on, max_refills: int) -> None:
    opened: list[str] = []
    engine = streaming(make_engine(), opened)
    assert isinstance(engine, StreamingEngine)
    assert not isinstance(make_engine(), StreamingEngine)
    ours, logged, drawn = trained_on(engine, max_refills)
    theirs, expected, drawn_in_rounds = trained_on(make_engine(), max_refills)
    assert texts(ours) == texts(theirs)
    assert (ours.tokens, ours.scores) == (theirs.tokens, theirs.scores)
    assert logged == expected
    assert drawn == drawn_in_rounds > 8
    assert opened == ["opened"]


def test_an_engine_that_fails_makes_the_same_batch_again(make_engine, trained_on) -> None:
    opened: list[str] = []
    ours, logged, drawn = trained_on(streaming(make_engine(), opened, fail_after=14))
    theirs, expected, drawn_in_rounds = trained_on(make_engine())
    assert texts(ours) == texts(theirs)
    assert (logged, drawn) == (expected, drawn_in_rounds)
    assert opened == ["opened"] * 2


def test_what_fails_beside_the_engine_is_not_its_fault(make_engine, trained_on) -> None:
    """As a reader of the data that is killed."""
    opened: list[str] = []
    for engine in (streaming(make_engine(), opened), make_engine()):
        with pytest.raises(OSError, match="^the reader was killed$"):
            trained_on(engine, drawn_at_most=8)
    assert opened == ["opened"]


def test_a_reward_with_a_state_gets_whole_rounds(make_engine, trained_on) -> None:
    opened: list[str] = []
    ours, *_ = trained_on(streaming(make_engine(), opened), reward=Counting())
    assert texts(ours) == texts(trained_on(make_engine())[0])
    assert not opened
