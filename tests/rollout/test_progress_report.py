"""What engines and the worker report while they work."""

from collections.abc import Callable

import pytest

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.exploration.token import TokenSampling
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.vllm.progress import FinishedRequests
from ngrpo.types.rollouts import Request, Sampling

Bind = Callable[[TorchEngine, Exploration], BoundExploration]


@pytest.mark.parametrize("slots", [3, 64])
def test_the_torch_engine_counts_up_to_what_it_returns(
    slots: int, make_engine: Callable[..., TorchEngine], bound: Bind, requests: list[Request], sampling: Sampling
) -> None:
    engine = make_engine(slots)
    told: list[tuple[int, int]] = []
    rollouts = engine.generate(
        requests, sampling, bound(engine, TokenSampling()), lambda finished, tokens: told.append((finished, tokens))
    )
    assert told == sorted(told)
    assert told[-1] == (len(requests), sum(rollout.length for rollout in rollouts))
    assert len(told) > 1
    assert told[0][0] < len(requests)
    assert told[0][1] > told[0][0]  # tokens of running rollouts count


def test_vllms_bar_is_told_of_each_request() -> None:
    """As ``LLM._run_engine`` drives it."""
    told: list[tuple[int, int]] = []
    bar = FinishedRequests(lambda finished, tokens: told.append((finished, tokens)), total=2, desc="", postfix="")
    for tokens in (1000, 3000):
        speed = tokens / bar.format_dict["elapsed"]
        bar.postfix = f"est. speed input: {0:.2f} toks/s, output: {speed:.2f} toks/s"
        bar.update(1)
    assert bar.n == bar.total == 2
    bar.refresh()
    bar.close()
    assert told == [(1, 1000), (2, 3000)]
