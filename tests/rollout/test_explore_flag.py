"""Requests that do not explore beside requests that do, in the torch engine."""

from dataclasses import replace

import pytest
import torch

from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling

MIXING = NeighborMixing(rate=0.4, k=3)


@pytest.mark.parametrize("batch_size", [64, 5])
def test_plain_rows_are_those_of_token_sampling_and_the_others_are_untouched(
    make_engine, bound, requests, sampling, batch_size
):
    engine = make_engine(batch_size)
    half = [replace(r, explore=number % 3 != 0) for number, r in enumerate(requests)]
    rollouts = engine.generate(half, sampling, bound(engine, MIXING))
    exploring = engine.generate(requests, sampling, bound(engine, MIXING))
    plain = engine.generate(requests, sampling, bound(engine, TokenSampling()))
    assert sum(len(r.mixture.positions) for r in exploring) > 50
    for request, ours, mixed, sampled in zip(half, rollouts, exploring, plain, strict=True):
        expected = mixed if request.explore else sampled
        assert torch.equal(ours.response_ids, expected.response_ids)
        torch.testing.assert_close(ours.log_probs, expected.log_probs, atol=3e-5, rtol=0)
        assert ours.mixture.positions.tolist() == expected.mixture.positions.tolist()
    assert any(not torch.equal(a.response_ids, b.response_ids) for a, b in zip(exploring, plain, strict=True))


def test_a_batch_of_plain_requests_is_token_sampling(make_engine, bound, requests, sampling):
    engine = make_engine()
    rollouts = engine.generate([replace(r, explore=False) for r in requests], sampling, bound(engine, MIXING))
    plain = engine.generate(requests, sampling, bound(engine, TokenSampling()))
    for ours, sampled in zip(rollouts, plain, strict=True):
        assert torch.equal(ours.response_ids, sampled.response_ids)
        assert torch.equal(ours.log_probs, sampled.log_probs)
        assert len(ours.mixture.positions) == 0
