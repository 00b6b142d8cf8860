"""Engine and trainer that disagree are warned of, and far apart end the run, in the first iteration already."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_run import batch, trainer

from ngrpo.callbacks.mismatch_limit import MismatchLimit
from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.token import TokenSampling


def module(computed_in: torch.dtype = torch.float32, exploration: Exploration | None = None) -> Any:
    lm = SimpleNamespace(config=SimpleNamespace(hidden_size=1000))
    return SimpleNamespace(
        computed_in=computed_in,
        policy=SimpleNamespace(lm=lm),
        exploration=exploration or TokenSampling(),
    )


def limit(
    dtype: torch.dtype = torch.float32, tf32: bool = False, exact: bool = False, **limits: float
) -> MismatchLimit:
    worker = SimpleNamespace(engine=SimpleNamespace(dtype=dtype, tf32=tf32), settings=SimpleNamespace(exact=exact))
    return MismatchLimit(worker, **limits)


def see(callback: MismatchLimit, value: float, of: Any, iteration: int = 0, **more: float) -> None:
    metrics = {name: torch.tensor(one) for name, one in ({"rollout/mismatch_mean": value} | more).items()}
    callback.on_train_batch_end(trainer(callback_metrics=metrics), of, None, batch(iteration), 0)


NUMBERS = [
    (limit(), module(), 1e-4, 0.01, 0.2),
    (limit(torch.bfloat16), module(), 0.03, 0.3, 2.3),
    (limit(tf32=True), module(), 0.03, 0.3, 2.3),
    (limit(), module(torch.bfloat16), 0.03, 0.3, 2.3),
    (limit(torch.bfloat16), module(torch.bfloat16), 0.03, 0.3, 2.3),
    (limit(torch.float16), module(torch.bfloat16), 0.03, 0.3, 2.3),
    (limit(torch.float16), module(torch.float16), 0.01, 0.05, 0.6),
    (limit(torch.float16), module(), 0.01, 0.05, 0.6),
    (limit(torch.float16, tf32=True), module(torch.float16), 0.01, 0.05, 0.6),
    (limit(), module(exploration=GaussianSoftTokens()), 0.04, 0.5, 6.0),
]


@pytest.mark.parametrize(("callback", "of", "normal", "strange", "wrong"), NUMBERS)
def test_the_limits_are_those_of_the_numbers(
    callback: MismatchLimit, of: Any, normal: float, strange: float, wrong: float, caplog: pytest.LogCaptureFixture
):
    see(callback, normal, of)
    assert caplog.records == []
    see(callback, strange, of)
    see(callback, strange, of, iteration=1)
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"iteration 1: the engine's log-probs are {strange:.3g} nats from the trainer's"
    )
    with pytest.raises(
        RunError, match=rf"iteration 1: the engine's log-probs are {wrong:.3g} nats .*mismatch_limit\.stop"
    ):
        see(callback, wrong, of)


def test_rollouts_of_older_weights_are_left_alone(caplog: pytest.LogCaptureFixture):
    callback = limit()
    see(callback, 5.0, module(), **{"rollout/age": 1.0})
    see(callback, float("nan"), module(), **{"policy/sequences": 0.0})  # every step was skipped
    assert caplog.records == []
    with pytest.raises(RunError):
        see(callback, 5.0, module(), **{"rollout/age": 0.0})


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("age", [0.0, 1.0])
def test_log_probs_that_are_no_number_end_the_run(exact: bool, age: float):
    for dtype, remedy in ((torch.float16, "dtype=float16; set it to bfloat16"), (torch.float32, "another model")):
        callback = limit(dtype, exact=exact)
        with pytest.raises(RunError, match=rf"iteration 1: the engine's log-probs are not a number .*{remedy}"):
            see(callback, float("nan"), module(), **{"rollout/age": age, "policy/sequences": 4.0})


def test_limits_can_be_set(caplog: pytest.LogCaptureFixture):
    callback = limit(warn=0.5, stop=3.0)
    see(callback, 0.4, module())
    assert caplog.records == []
    see(callback, 2.9, module())
    assert len(caplog.records) == 1
    with pytest.raises(RunError):
        see(callback, 3.1, module())
    with pytest.raises(SettingError, match=r"callbacks\.mismatch_limit\.stop=-1 must be positive"):
        limit(stop=-1)


def test_an_exact_run_ends_at_any_difference(caplog: pytest.LogCaptureFixture):
    callback = limit(exact=True, stop=3.0)
    see(callback, 0.0, module())
    assert caplog.records == []
    with pytest.raises(RunError, match=r"iteration 1: .* 1e-09 nats .*rollout\.exact=true promises"):
        see(callback, 1e-9, module())
