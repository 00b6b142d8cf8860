"""An engine whose process is killed, at any moment, is rebuilt once; the rollouts are those of an undisturbed run."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_run import Module, batch, trainer
from mortal_engine import MortalEngine
from test_rollout_worker import PROMPTS, Echo, contents

from ngrpo.callbacks.rollout import RolloutCallback
from ngrpo.errors import RunError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.dynamic_sampling import DynamicSampling, every_group
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.training.run_length import RunLength
from ngrpo.types.problems import PromptBatch

ITERATIONS = 3
CPU = torch.device("cpu")


class Policy(Module):
    """Its weights are others after each update."""

    updates = 0

    def __init__(self, source: ModelSource) -> None:
        super().__init__()
        self.source = source
        self.walked: list[int] = []

    def follow_tokens(self, share: float) -> None: ...

    def offload_optimizers(self) -> None: ...

    @property
    def weights(self) -> "Policy":
        return self  # stands in for its own export

    def named_weights(self) -> Any:
        generator = torch.Generator().manual_seed(self.updates)
        self.walked.append(0)
        for name, parameter in self.source.load().named_parameters():
            self.walked[-1] += 1
            yield name, parameter.detach() + 0.02 * self.updates * torch.randn(parameter.shape, generator=generator)

    def learned_exploration(self) -> dict[str, torch.Tensor]:
        return {}


class Trained:
    """A run of three iterations with an evaluation after each."""

    def __init__(self, source: ModelSource, run_dir: Path | None, ahead: int = 0, **deaths: list[int]) -> None:
        self.engine, self.policy = MortalEngine(source, deaths), Policy(source)
        strategy = NeighborMixing(rate=0.5, refresh_every=1)
        self.worker = RolloutWorker(
            self.engine, source.tokenizer(), Echo(), strategy, RolloutSettings(3, 12, 0.9, ahead), (3,), seed=0
        )
        self.callback = RolloutCallback(self.worker, RunLength(ITERATIONS), DynamicSampling(every_group), run_dir)
        self.rollouts: list[Any] = []
        self.evaluated: list[Any] = []

    def run(self) -> "Trained":
        try:
            self._run()
        finally:
            self.worker.close()
            assert self.engine.left() == []
        return self

    def _run(self) -> None:
        lightning = trainer()
        self.callback.on_train_start(lightning, self.policy)
        for iteration in range(ITERATIONS):
            one = batch(iteration)
            one.prompts = list(PROMPTS)
            one.peek_next = lambda following=iteration + 1: PromptBatch(list(PROMPTS), 0, following)
            self.callback.on_train_batch_start(lightning, self.policy, one, 0)
            self.rollouts += contents(one.experience.rollouts)
            self.policy.updates += 1
            self.callback.on_train_batch_end(lightning, self.policy, None, one, 0)
            made = self.worker.evaluate(list(PROMPTS), 2, TokenSampling(), 0.9)
            assert made is not None
            self.evaluated += contents(made.rollouts)
            self.callback.state_dict()


@pytest.fixture(scope="module")
def undisturbed(tiny_source: ModelSource) -> Trained:
    return Trained(tiny_source, None).run()


MOMENTS = {
    "in_generation": {"generate": [1]},
    "in_a_later_generation": {"generate": [3]},
    "before_a_generation": {"before_generate": [3]},
    "in_an_evaluation": {"generate": [2]},
    "in_the_last_evaluation": {"generate": [6]},
    "in_the_first_transfer": {"transfer": [1]},
    "in_a_transfer": {"transfer": [2]},
    "in_the_last_transfer": {"transfer": [4]},
    "on_its_way_to_sleep": {"before_sleep": [1]},
    "during_the_update": {"before_wake": [1]},
    "awake_before_the_transfer": {"before_transfer": [2]},
    "before_the_tables_are_built": {"before_embedding": [3]},
    "at_two_moments": {"generate": [1], "transfer": [3]},
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_engine_is_rebuilt_and_the_run_is_as_if_nothing_had_been(
    tiny_source: ModelSource, undisturbed: Trained, moment: str, caplog: pytest.LogCaptureFixture
) -> None:
    deaths = MOMENTS[moment]
    made = Trained(tiny_source, None, **deaths).run()
    assert made.rollouts == undisturbed.rollouts
    assert made.evaluated == undisturbed.evaluated
    assert made.engine.calls["start"] == 1 + len(deaths)
    said = [message for message in caplog.messages if "the rollout engine failed" in message]
    assert len(said) == len(deaths)
    assert "(RuntimeError: an engine process has died); it is rebuilt and " in said[0]


@pytest.mark.parametrize("deaths", [{"transfer": [2]}, {"before_wake": [1]}, {"transfer": [2], "start": [2]}])
def test_every_walk_over_the_weights_goes_to_its_end(tiny_source: ModelSource, deaths: dict[str, list[int]]) -> None:
    """On sharded ranks each tensor is a collective: one whose engine failed must not leave the others alone with it."""
    trained = Trained(tiny_source, None, **deaths)
    with suppress(RunError):
        trained.run()
    assert trained.engine.calls["start"] == 2
    assert set(trained.policy.walked) == {len(list(tiny_source.load().named_parameters()))}


@pytest.mark.parametrize("deaths", [{"transfer": [2, 3]}, {"generate": [3, 4]}, {"transfer": [2], "start": [2]}])
@pytest.mark.parametrize("saved", [False, True])
def test_one_that_fails_again_ends_the_run_with_advice_that_can_be_followed(
    tiny_source: ModelSource, tmp_path: Path, deaths: dict[str, list[int]], saved: bool
) -> None:
    if saved:
        (tmp_path / "checkpoints" / "iteration-1").mkdir(parents=True)
    trained = Trained(tiny_source, tmp_path, **deaths)
    with pytest.raises(RunError) as caught:
        trained.run()
    lower = "lower rollout.engine.max_batch_size, or " if "generate" in deaths else ""
    resume = f"the last checkpoint is of iteration 1: resume with ckpt={tmp_path}" if saved else (
        "there is no checkpoint to resume from"
    )  # fmt: skip
    assert str(caught.value) == (
        "the rollout engine failed again after it was rebuilt (RuntimeError: an engine process has died); "
        f"{lower}take another engine with rollout=torch; {resume}."
    )
    assert caught.value.everywhere
    assert trained.engine.calls["start"] == 2


def test_a_batch_that_was_lost_beside_the_update_is_made_with_the_new_weights(
    tiny_source: ModelSource, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that it was begun with are gone."""
    ages: list[float] = []
    trained = Trained(tiny_source, None, ahead=1, generate=[2])
    trained.policy.log = lambda tag, value, batch_size: ages.append(value)
    trained.run()
    assert ages == [0.0, 0.0, 1.0]
    assert len(trained.rollouts) == ITERATIONS * len(PROMPTS) * 3
    assert trained.engine.calls["start"] == 2
    assert [message for message in caplog.messages if "failed" in message] == [
        "the rollout engine failed (RuntimeError: an engine process has died); it is rebuilt and gets the weights again"
    ]


def test_an_engine_that_dies_beside_every_update_ends_the_run(tiny_source: ModelSource) -> None:
    trained = Trained(tiny_source, None, ahead=1, generate=[2, 5])  # 3 is an evaluation, 4 makes the second batch
    with pytest.raises(RunError, match="again while it prefetched the next batch"):
        trained.run()


def test_an_evaluation_alone_goes_on_with_the_weights_that_the_engine_loads(tiny_source: ModelSource) -> None:
    def evaluated(**deaths: list[int]) -> Any:
        worker = RolloutWorker(
            MortalEngine(tiny_source, deaths), tiny_source.tokenizer(), Echo(), TokenSampling(),
            RolloutSettings(3, 12), (3,), seed=0,
        )  # fmt: skip
        worker.start(CPU)
        made = [worker.evaluate(list(PROMPTS), 2, TokenSampling(), 0.9) for _ in range(2)]
        worker.close()
        return [contents(one.rollouts) for one in made if one is not None]

    assert evaluated(generate=[2]) == evaluated()


def test_an_evaluation_whose_engine_fails_again_is_to_be_started_again(tiny_source: ModelSource) -> None:
    worker = RolloutWorker(
        MortalEngine(tiny_source, {"generate": [1, 2]}), tiny_source.tokenizer(), Echo(), TokenSampling(),
        RolloutSettings(3, 12), (3,), seed=0,
    )  # fmt: skip
    worker.start(CPU)
    with pytest.raises(RunError, match=r"take another engine with rollout=torch; start again\.$"):
        worker.evaluate(list(PROMPTS), 2, TokenSampling(), 0.9)
    worker.close()


def test_a_strategy_whose_tables_fail_is_shown_with_its_own_traceback(tiny_source: ModelSource) -> None:
    class Broken(NeighborMixing):
        def prepare(self, embedding: torch.Tensor, vocabulary: Any) -> dict[str, torch.Tensor]:
            raise KeyError("a typing error of the author")

    trained = Trained(tiny_source, None)
    trained.worker.exploration = Broken()
    with pytest.raises(KeyError, match="a typing error") as caught:
        trained.run()
    assert str(caught.traceback[-1].path) == __file__
    assert trained.engine.calls["start"] == 1
