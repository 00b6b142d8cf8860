"""Rollouts of vLLM: what the trainer replays, and what the torch engine makes of the same keys."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from vllm_checks import (
    MIXING,
    UNSTOPPED,
    assert_author_is_informed,
    assert_same_rollouts,
    mixed_total,
    random_requests,
    replay_error,
    start_engine,
)

from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import MODEL_PATH, ModelSource
from ngrpo.types.rollouts import StopReason

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm

REQUESTS = random_requests(6, 5, 60, samples=4)


@pytest.mark.vllm_smoke
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_the_trainer_replays_what_vllm_recorded(engine, mixing, trainer, temperature):
    rollouts = engine.generate(REQUESTS, replace(UNSTOPPED, temperature=temperature), mixing)
    plain = sum(r.length for r in rollouts) - mixed_total(rollouts)
    assert mixed_total(rollouts) > 300
    assert plain > 300
    assert replay_error(rollouts, MIXING, temperature, trainer) < 1e-4
    assert replay_error(rollouts, MIXING, temperature, trainer, ignore=True) > 0.01
    assert replay_error(rollouts, MIXING, 1.0, trainer) > 0.01


@pytest.mark.parametrize("strategy", [MIXING, NeighborMixing(rate=0.3, k=1), NeighborMixing(), TokenSampling()])
def test_equal_keys_give_the_rollouts_of_the_torch_engine(engine, oracle, bound_to_demo, strategy):
    bound = bound_to_demo(strategy)
    rollouts = engine.generate(REQUESTS, UNSTOPPED, bound)
    assert_same_rollouts(rollouts, oracle.generate(REQUESTS, UNSTOPPED, bound))
    assert (mixed_total(rollouts) > 0) == (strategy.width > 0)


def test_greedy_text_is_that_of_the_torch_engine(engine, oracle, bound_to_demo):
    greedy = bound_to_demo(TokenSampling(top_k=1))
    rollouts = engine.generate(REQUESTS, UNSTOPPED, greedy)
    assert_same_rollouts(rollouts, oracle.generate(REQUESTS, UNSTOPPED, greedy))
    assert [r.response_ids.tolist() for r in rollouts[0:4]] == [rollouts[0].response_ids.tolist()] * 4


def test_rollouts_do_not_depend_on_what_runs_beside_them(engine, mixing):
    together = engine.generate(REQUESTS, UNSTOPPED, mixing)
    assert_same_rollouts(engine.generate(REQUESTS[::-1], UNSTOPPED, mixing), together[::-1])
    assert_same_rollouts(engine.generate(REQUESTS[5:6], UNSTOPPED, mixing), together[5:6])


def test_requests_that_do_not_explore_are_sampled_plainly_beside_those_that_do(engine, oracle, mixing, bound_to_demo):
    half = [replace(r, explore=number % 2 == 0) for number, r in enumerate(REQUESTS)]
    rollouts = engine.generate(half, UNSTOPPED, mixing)
    exploring = engine.generate(REQUESTS, UNSTOPPED, mixing)
    sampled = engine.generate(REQUESTS, UNSTOPPED, bound_to_demo(TokenSampling()))
    assert_same_rollouts(rollouts[::2], exploring[::2])
    assert_same_rollouts(rollouts, oracle.generate(half, UNSTOPPED, mixing))
    for ours, plain in zip(rollouts[1::2], sampled[1::2], strict=True):
        assert mixed_total([ours]) == 0
        assert ours.response_ids.tolist() == plain.response_ids.tolist()
        torch.testing.assert_close(ours.log_probs, plain.log_probs, atol=1e-4, rtol=0)


def frequent_tokens(rollouts, number: int) -> tuple[int, ...]:
    """The tokens that stand most often among the first eight of a response."""
    counts = torch.cat([r.response_ids[:8] for r in rollouts]).bincount()
    return tuple(counts.topk(number).indices.tolist())


def test_nothing_is_mixed_after_an_end_token(engine, oracle, mixing):
    ends = frequent_tokens(engine.generate(REQUESTS, UNSTOPPED, mixing), 2)
    bound = replace(mixing, end_ids=ends)
    rollouts = engine.generate(REQUESTS, UNSTOPPED, bound)
    assert_same_rollouts(rollouts, oracle.generate(REQUESTS, UNSTOPPED, bound))
    ended = 0
    for r in rollouts:
        at = torch.isin(r.response_ids, torch.tensor(ends)).nonzero()[:, 0]
        if len(at):
            ended += 1
            assert bool((r.mixture.positions < len(r.prompt_ids) + at[0]).all())
    assert ended > 12
    assert mixed_total(rollouts) > 20


def test_any_of_the_stop_tokens_ends_a_rollout(engine, oracle, mixing):
    stops = frequent_tokens(engine.generate(REQUESTS, UNSTOPPED, mixing), 20)
    sampling = replace(UNSTOPPED, stop_ids=stops)
    rollouts = engine.generate(REQUESTS, sampling, mixing)
    assert_same_rollouts(rollouts, oracle.generate(REQUESTS, sampling, mixing))
    last = [int(r.response_ids[-1]) for r in rollouts if r.stop_reason is StopReason.STOP]
    assert len(set(last)) >= 3
    assert set(last) <= set(stops)
    assert not any(set(stops) & set(r.response_ids[:-1].tolist()) for r in rollouts)


def test_the_models_generation_config_changes_nothing(oracle, mixing, tmp_path):
    shutil.copytree(MODEL_PATH, tmp_path / "model")
    stops = frequent_tokens(oracle.generate(REQUESTS, UNSTOPPED, mixing), 3)
    settings = {"do_sample": True, "top_k": 1, "temperature": 0.1, "repetition_penalty": 3.0, "max_new_tokens": 3}
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(settings | {"eos_token_id": list(stops)}))
    engine = start_engine(ModelSource(path=str(tmp_path / "model")))
    assert_same_rollouts(engine.generate(REQUESTS, UNSTOPPED, mixing), oracle.generate(REQUESTS, UNSTOPPED, mixing))


@pytest.mark.slow
def test_compiled_rollouts_are_those_of_the_torch_engine(demo, oracle, mixing, trainer):
    engine = start_engine(demo, eager=False)
    rollouts = engine.generate(REQUESTS, UNSTOPPED, mixing)
    assert_same_rollouts(rollouts, oracle.generate(REQUESTS, UNSTOPPED, mixing))
    assert replay_error(rollouts, MIXING, UNSTOPPED.temperature, trainer) < 1e-4


def test_finished_requests_are_reported(engine, mixing):
    reports: list[tuple[int, int]] = []
    rollouts = engine.generate(REQUESTS, UNSTOPPED, mixing, lambda finished, tokens: reports.append((finished, tokens)))
    finished, tokens = reports[-1]
    assert [count for count, _ in reports] == list(range(1, len(REQUESTS) + 1))
    assert finished == len(REQUESTS)
    assert tokens == sum(r.length for r in rollouts)


def test_an_exception_of_the_strategys_author_is_reported_as_one(engine, mixing):
    assert_author_is_informed(engine, mixing)
