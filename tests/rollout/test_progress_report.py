"""Progress that engines report while they generate."""

from collections.abc import Callable

import pytest

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.exploration.token import TokenSampling
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Request, Sampling

Bind = Callable[[TorchEngine, Exploration], BoundExploration]


@pytest.mark.parametrize("slots", [3, 64])
def test_the_torch_engine_counts_up_to_what_it_returns(
    slots: int, make_engine: Callable[..., TorchEngine], bound: Bind, requests: list[Request], sampling: Sampling
) -> None:
    engine = make_engine(slots)
    reported: list[tuple[int, int]] = []
    rollouts = engine.generate(
        requests, sampling, bound(engine, TokenSampling()), lambda finished, tokens: reported.append((finished, tokens))
    )
    assert reported == sorted(reported)
    assert reported[-1] == (len(requests), sum(rollout.length for rollout in rollouts))
    assert len(reported) > 1
    assert reported[0][0] < len(requests)
    assert reported[0][1] > reported[0][0]  # tokens of running rollouts count
