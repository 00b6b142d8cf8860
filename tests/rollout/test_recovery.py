"""Recovery: an engine that fails is rebuilt once, and every rank does the same, whatever happened on one of them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import torch
from fake_processes import gathering
from test_rollout_worker import PROMPTS, SETTINGS, Echo, contents

from ngrpo.entrypoints.error_handling import sentence
from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.base import Step, StepContext
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.recovery import EngineFailure, made_with_recovery, transferred_with_recovery
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.worker import RolloutWorker


def how_to_resume() -> str:
    return "there is no checkpoint"


class Mortal(TorchEngine):
    """Dies in the middle of the given calls of `generate`, and has to be built again."""

    deaths: tuple[int, ...] = ()
    calls = 0
    starts = 0

    def start(self, device: torch.device) -> None:
        self.starts += 1
        super().start(device)

    def generate(self, *arguments: Any) -> list[Any]:
        self.calls += 1
        if self.calls in self.deaths:
            self.lm.get_input_embeddings().weight.fill_(float("nan"))
            raise RuntimeError("CUDA error: an illegal\n memory access")
        return super().generate(*arguments)


@pytest.fixture
def make(tiny_source: ModelSource) -> Callable[..., RolloutWorker]:
    def worker(*deaths: int) -> RolloutWorker:
        engine = Mortal(tiny_source)
        engine.deaths = deaths
        made = RolloutWorker(engine, tiny_source.tokenizer(), Echo(), NeighborMixing(rate=0.5), SETTINGS, (3,), 0)
        made.start(torch.device("cpu"))
        return made

    return worker


def changed_weights(source: ModelSource) -> list[tuple[str, torch.Tensor]]:
    """Other weights than the engine loads: those of a policy that has been trained."""
    generator = torch.Generator().manual_seed(5)
    named = source.load().named_parameters()
    return [(name, p.detach() + 0.02 * torch.randn(p.shape, generator=generator)) for name, p in named]


def test_the_batch_is_made_again_with_current_weights_tables_and_keys(
    make: Callable[..., RolloutWorker], tiny_source: ModelSource, caplog: pytest.LogCaptureFixture
) -> None:
    weights = changed_weights(tiny_source)
    straight, mortal = make(), make(1)
    for worker in (straight, mortal):
        worker.sync_weights(weights, refresh=True)
        _ = worker.bound  # the table of these weights
    tables = mortal.bound.tables

    def transfer(restart: bool) -> None:
        mortal.sync_weights(weights, refresh=False, restart=restart)

    again = made_with_recovery(lambda: mortal.roll_out(PROMPTS, 5), transfer, how_to_resume)
    assert contents(again.rollouts) == contents(straight.roll_out(PROMPTS, 5).rollouts)
    assert mortal.engine.starts == 2
    assert mortal.bound.tables == tables
    assert caplog.messages == [
        "the rollout engine failed (RuntimeError: CUDA error: an illegal memory access); it is rebuilt and makes the "
        "batch again"
    ]


def test_twice_is_once_too_often(make: Callable[..., RolloutWorker], tiny_source: ModelSource) -> None:
    worker = make(1, 2)
    with pytest.raises(RunError) as caught:
        made_with_recovery(
            lambda: worker.roll_out(PROMPTS, 5),
            lambda restart: worker.sync_weights(changed_weights(tiny_source), refresh=False, restart=restart),
            how_to_resume,
        )
    assert str(caught.value) == (
        "the rollout engine failed again after it was rebuilt (RuntimeError: CUDA error: an illegal memory access);"
        " lower rollout.engine.max_batch_size, or take another engine with rollout=torch; there is no checkpoint."
    )
    assert caught.value.everywhere


def test_a_wrong_setting_is_no_failure_of_the_engine(make: Callable[..., RolloutWorker]) -> None:
    worker = make()

    def refuse(*arguments: Any) -> None:
        raise SettingError("too much.")

    worker.engine.generate = refuse
    with pytest.raises(SettingError, match="too much"):
        made_with_recovery(lambda: worker.roll_out(PROMPTS, 5), lambda failed: None, how_to_resume)


class FailsLater(NeighborMixing):
    """Sound when it is tried with two rows; its author did not think of twelve."""

    def step(self, logits: torch.Tensor, ctx: StepContext) -> Step:
        if len(logits) > 2:
            raise KeyError("a typing error of the author")
        return super().step(logits, ctx)


def test_an_exception_of_the_strategys_author_is_no_failure_of_the_engine(tiny_source: ModelSource) -> None:
    engine = Mortal(tiny_source)
    worker = RolloutWorker(engine, tiny_source.tokenizer(), Echo(), FailsLater(rate=0.5), SETTINGS, (3,), 0)
    worker.start(torch.device("cpu"))
    with pytest.raises(KeyError, match="a typing error") as caught:
        made_with_recovery(
            lambda: worker.roll_out(PROMPTS, 5),
            lambda restart: worker.sync_weights([], refresh=False, restart=restart),
            how_to_resume,
        )
    assert any(entry.name == "step" and str(entry.path) == __file__ for entry in caught.traceback)
    assert engine.starts == 1
    assert sentence(caught.value) is None  # so that the scripts show the traceback


def in_ranks(function: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch, ranks: int = 2) -> list[Any]:
    """Calls ``function(rank)`` in a thread a rank; returns results and errors."""
    monkeypatch.setattr("ngrpo.rollout.recovery.gathered_everywhere", gathering(Barrier(ranks)))

    def run(rank: int) -> Any:
        try:
            return function(rank)
        except RunError as error:
            return error

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(run, range(ranks)))


def test_all_ranks_transfer_weights_when_one_engine_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[Any]] = [[], []]

    def on(rank: int) -> str:
        def make() -> str:
            calls[rank].append("make")
            if rank == 1 and len(calls[1]) == 1:
                raise EngineFailure("dead")
            return f"rollouts of {rank}"

        return made_with_recovery(make, lambda failed: calls[rank].append(("rebuild", failed)), how_to_resume)

    assert in_ranks(on, monkeypatch) == ["rollouts of 0", "rollouts of 1"]
    assert calls == [["make", ("rebuild", False)], ["make", ("rebuild", True), "make"]]


def test_all_ranks_transfer_again_when_one_engine_fails_in_a_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[Any]] = [[], []]

    def on(rank: int) -> None:
        def transfer(restart: bool) -> None:
            calls[rank].append(restart)
            if rank == 1 and not restart:
                raise EngineFailure("dead")

        transferred_with_recovery(transfer, how_to_resume)

    assert in_ranks(on, monkeypatch) == [None, None]
    assert calls == [[False, False], [False, True]]


def test_an_engine_that_is_not_rebuilt_on_one_rank_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def on(rank: int) -> str:
        def make() -> str:
            if rank == 0:
                raise EngineFailure("dead")
            return "rollouts"

        def transfer(restart: bool) -> None:
            if restart:
                raise EngineFailure("does not start")

        return made_with_recovery(make, transfer, how_to_resume)

    errors = in_ranks(on, monkeypatch)
    assert [" again after it was rebuilt (does not start); " in str(error) for error in errors] == [True, True]


def test_all_ranks_leave_with_the_error_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def on(rank: int) -> str:
        def make() -> str:
            if rank == 0:
                raise RunError("reward raised ValueError on response 3.")
            raise EngineFailure("dead")

        return made_with_recovery(make, lambda failed: None, how_to_resume)

    errors = in_ranks(on, monkeypatch)
    assert [str(error) for error in errors] == ["reward raised ValueError on response 3."] * 2
    assert all(error.everywhere for error in errors)


def test_an_engine_that_does_not_start_says_why_and_nothing_of_going_on(make: Callable[..., RolloutWorker]) -> None:
    worker = make()

    def start(device: torch.device) -> None:
        raise NotImplementedError("no kernel\nfor heads of 7")

    worker.engine.start = start
    with pytest.raises(RunError) as caught:
        worker.start(torch.device("cpu"))
    assert str(caught.value) == (
        "the rollout engine could not start (NotImplementedError: no kernel for heads of 7); choose another model, "
        "change rollout.engine, or take another engine such as rollout=torch."
    )


def test_a_failure_outside_of_the_loop_promises_no_checkpoint() -> None:
    assert sentence(EngineFailure("out of blocks")) == (
        "the rollout engine failed (out of blocks); change rollout.engine, or take another with rollout=torch."
    )
