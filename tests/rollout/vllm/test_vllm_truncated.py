"""Truncated sampling inside vLLM: the sets that it drew from are recorded, replayed, and those of the torch engine."""

from dataclasses import replace

import pytest
import torch
from vllm_checks import UNSTOPPED, as_one_piece, assert_same_rollouts, continued, random_requests, replay_error

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.packing import pack
from ngrpo.types.support import NO_ID

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm

REQUESTS = random_requests(6, 5, 60, samples=4)
STRATEGIES: list[Exploration] = [
    MinPSampling(0.1, largest_support=128),
    MinPSampling(0.001, largest_support=6),
    TokenSampling(top_p=0.95, largest_support=128),
    TokenSampling(top_k=20, largest_support=128),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_replayed_on_the_recorded_sets_which_are_those_of_the_torch_engine(
    engine, oracle, bound_to_demo, trainer, strategy
):
    bound = bound_to_demo(strategy)
    rollouts = engine.generate(REQUESTS, UNSTOPPED, bound)
    assert replay_error(rollouts, strategy, UNSTOPPED.temperature, trainer) < 1e-4
    unrecorded = [replace(rollout, support=None) for rollout in rollouts]
    assert replay_error(unrecorded, strategy, UNSTOPPED.temperature, trainer) > 0.01
    steps = pack(rollouts).steps()
    assert steps.support is not None
    assert bool((steps.support == steps.token[:, None]).any(-1).all())
    assert bool((steps.support != NO_ID).any(-1).all())
    assert_same_rollouts(rollouts, oracle.generate(REQUESTS, UNSTOPPED, bound))


def test_plain_requests_and_prefixes(engine, oracle, bound_to_demo, trainer):
    strategy = STRATEGIES[0]
    bound = bound_to_demo(strategy)
    asked = [replace(request, explore=number % 3 > 0) for number, request in enumerate(REQUESTS)]
    rollouts = engine.generate(asked, UNSTOPPED, bound)
    assert_same_rollouts(rollouts, oracle.generate(asked, UNSTOPPED, bound))
    assert [bool(r.support.counts.any()) for r in rollouts] == [request.explore for request in asked]
    assert replay_error(rollouts, strategy, UNSTOPPED.temperature, trainer) < 1e-4
    whole = [r for r, request in zip(rollouts, asked, strict=True) if request.explore and r.length > 8]
    made = engine.generate([continued(r, 7) for r in whole], UNSTOPPED, bound)
    assert [r.support.counts[:7].tolist() for r in made] == [[0] * 7] * len(whole)
    assert_same_rollouts(as_one_piece(made, whole), whole)
    scores = trainer(pack(made), UNSTOPPED.temperature, strategy).log_prob
    torch.testing.assert_close(scores, torch.cat([r.generated_log_probs for r in made]), atol=1e-4, rtol=0)
