"""What a GPU alone shows: changed tensors reach captured graphs, weights come after a sleep, memory is given back."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm_checks import (
    MIXING,
    UNSTOPPED,
    assert_wrong_transfers_are_caught,
    mixed_total,
    random_requests,
    replay_error,
    start_engine,
)

from ngrpo.exploration.neighbor_annealed import AnnealedNeighborMixing
from ngrpo.exploration.runtime.bound import BoundExploration, bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.vllm.engine import VllmEngine
from ngrpo.rollout.vllm.private import sleeping_memory
from ngrpo.types.rollouts import Request

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.gpu,
]


def test_a_schedule_moves_inside_captured_graphs():
    source = ModelSource(dtype="float32")
    strategy = AnnealedNeighborMixing(rate_start=0.8, rate_end=0.1, schedule_iterations=6, end_token=None)
    engine = start_engine(source, strategy, eager=False, dtype="float32", device=torch.device("cuda"))
    trainer = ScoringModel(source.load())
    bound = bind(strategy, engine.embedding(), Vocabulary.of(source.tokenizer()))
    for finished, rate in ((0, 0.8), (3, 0.45), (6, 0.1), (0, 0.8)):
        rollouts = engine.generate(random_requests(6, 5, 60, samples=4), UNSTOPPED, bound.after(finished))
        tokens = sum(rollout.length for rollout in rollouts)
        assert abs(mixed_total(rollouts) / tokens - rate) < 5 * (rate * (1 - rate) / tokens) ** 0.5
        # TF32 products in the card's attention, exact ones on the CPU
        error, ignored = (
            replay_error(rollouts, strategy, UNSTOPPED.temperature, trainer, ignore=ignore) for ignore in (False, True)
        )
        assert error < 0.1
        assert ignored > 4 * error
    engine.close()


def test_weights_come_after_a_sleep_and_after_a_transfer_that_broke_off():
    source = ModelSource(dtype="float32")
    device = torch.device("cuda")
    engine = start_engine(source, dtype="float32", device=device)
    weights = {name: weight.detach() for name, weight in source.load().to(device).named_parameters()}
    engine.sync_loaded(weights.items())
    bound = bind(MIXING, engine.embedding(), Vocabulary.of(source.tokenizer()))
    requests = random_requests(6, 5, 60)
    before = answers(engine, requests, bound)
    version = engine.weight_version

    def cut_off() -> Iterator[tuple[str, Tensor]]:
        yield from list(weights.items())[:5]
        raise OSError("a rank was lost")

    for broken in (False, True):
        engine.sleep()
        with pytest.raises(RuntimeError, match="a sleeping engine serves no weights"):
            engine.generate(requests, UNSTOPPED, bound)
        engine.wake()
        if broken:
            with pytest.raises(OSError, match="a rank was lost"):
                engine.sync_weights(cut_off())
            with pytest.raises(RuntimeError, match="serves no weights"):
                engine.generate(requests, UNSTOPPED, bound)
        engine.sync_weights(weights.items())
        assert engine.weight_version == version
        assert answers(engine, requests, bound) == before
    assert_wrong_transfers_are_caught(
        engine, {name: weight * 1.1 for name, weight in weights.items()}, ["model.norm.weight"]
    )
    engine.close()


def test_an_engine_without_sleep_mode_serves_on_and_takes_new_weights():
    source = ModelSource(dtype="float32")
    device = torch.device("cuda")
    engine = start_engine(source, dtype="float32", device=device, enable_sleep_mode=False)
    weights = {name: weight.detach() for name, weight in source.load().to(device).named_parameters()}
    bound = bind(MIXING, engine.embedding(), Vocabulary.of(source.tokenizer()))
    requests = random_requests(6, 5, 60)
    before, free = answers(engine, requests, bound), torch.cuda.mem_get_info()[0]
    engine.sleep()
    assert torch.cuda.mem_get_info()[0] < free + 2**28
    engine.wake()
    engine.sync_weights((name, weight * 1.1) for name, weight in weights.items())
    assert answers(engine, requests, bound) != before
    engine.sync_weights(weights.items())
    assert answers(engine, requests, bound) == before
    engine.close()


def test_contexts_of_many_short_rows_stay_whole_and_those_of_few_may_be_split(monkeypatch: pytest.MonkeyPatch):
    from ngrpo.rollout.vllm import runner_v2

    bound_splits, seen = runner_v2.bound_splits, set()

    def noting(groups: list[list[Any]], rows: int, longest: int) -> None:
        bound_splits(groups, rows, longest)
        seen.update((rows, group.get_metadata_builder().max_num_splits) for of in groups for group in of)

    monkeypatch.setattr(runner_v2, "bound_splits", noting)
    source, device = ModelSource(dtype="bfloat16"), torch.device("cuda")
    engine = VllmEngine(source, MIXING, 60, 96, max_batch_size=96, dtype="bfloat16", gpu_memory_utilization=0.2)
    engine.start(device)
    trainer = ScoringModel(ModelSource(dtype="float32").load())
    bound = bind(MIXING, engine.embedding(), Vocabulary.of(source.tokenizer()))
    for samples, splits in ((1, 32), (16, 1)):
        seen.clear()
        rollouts = engine.generate(random_requests(6, 5, 60, samples=samples), UNSTOPPED, bound)
        assert (samples * 6 if samples > 1 else 8, splits) in seen
        error, ignored = (
            replay_error(rollouts, MIXING, UNSTOPPED.temperature, trainer, ignore=ignore) for ignore in (False, True)
        )
        assert error < 1.5  # bfloat16 beside float32: 0.5 nats at most on a CPU
        assert ignored > 4 * error
    engine.close()


def answers(engine: VllmEngine, requests: list[Request], bound: BoundExploration) -> list[list[int]]:
    """Returns the tokens of the responses."""
    return [rollout.response_ids.tolist() for rollout in engine.generate(requests, UNSTOPPED, bound)]


def fill_the_card() -> list[Tensor]:
    """Takes all memory that is free."""
    taken, size = [], torch.cuda.mem_get_info()[0]
    while size >= 2**20:
        try:
            taken.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    return taken


@pytest.mark.parametrize("ended", ["awake", "asleep", "failed to wake"])
def test_an_engine_gives_all_of_its_memory_back_and_the_next_one_serves(ended: str):
    source = ModelSource(dtype="float32")
    weights = {name: weight.detach() for name, weight in source.load().cuda().named_parameters()}
    requests = random_requests(6, 5, 60)
    made = [answers_of_an_engine(source, requests, weights, last) for last in (ended, "awake")]
    assert made[0] == made[1]


def answers_of_an_engine(
    source: ModelSource, requests: list[Request], weights: dict[str, Tensor], ended: str
) -> list[list[int]]:
    """Starts an engine, lets it answer and sleep, ends it as told, and finds that it gave its memory back."""
    engine = start_engine(source, dtype="float32", device=torch.device("cuda"))
    try:
        bound = bind(MIXING, engine.embedding(), Vocabulary.of(source.tokenizer()))
        first = answers(engine, requests, bound)
        engine.sleep()
        if ended == "awake":
            engine.wake()
            engine.sync_weights(weights.items())
            assert answers(engine, requests, bound) == first
        elif ended == "failed to wake":
            taken = fill_the_card()
            with pytest.raises(Exception, match="CUDA|memory"):
                engine.wake()
            del taken
            torch.cuda.empty_cache()
    finally:
        engine.close()
    assert sleeping_memory() == 0
    return first
