"""Rollouts and requests survive JSON bit for bit, and what is none is refused."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from ngrpo.errors import SettingError
from ngrpo.remote.messages import (
    mixture_message,
    mixture_of,
    prefix_of,
    request_message,
    rollout_message,
    rollout_of,
    sampling_message,
    tensor_message,
    tensor_of,
)
from ngrpo.types.distributions import Distributions
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Prefix, Request, Rollout, Sampling, StopReason
from ngrpo.types.support import Support

TENSORS = [
    torch.tensor([-0.0, float("inf"), float("nan"), 1e-40]),
    torch.randn(3, 2).bfloat16(),
    torch.arange(6, dtype=torch.int32).reshape(2, 3).T,
    torch.tensor([2**62, -1]),
    torch.zeros(0, 4),
    torch.randn(4).half(),
    torch.tensor(1.5),
]
WHOLE = Record(
    torch.tensor([[1, 2], [3, 4]], dtype=torch.int32),
    torch.rand(2, 2),
    torch.rand(2, 2),
    torch.randn(2, 8).bfloat16(),
    torch.rand(2),
)
RECORDS = [WHOLE, Record(WHOLE.ids, WHOLE.weights), Record(WHOLE.ids[:0], WHOLE.weights[:0])]


def through_json(message: Any) -> Any:
    return json.loads(json.dumps(message))


def same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    flat = (tensor.contiguous().flatten().view(torch.uint8) for tensor in (one, other))
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*flat)


@pytest.mark.parametrize("tensor", TENSORS, ids=[str(one.dtype) + str(list(one.shape)) for one in TENSORS])
def test_a_tensor_comes_back_bit_for_bit(tensor: torch.Tensor) -> None:
    assert same(tensor_of(through_json(tensor_message(tensor))), tensor)


@pytest.mark.parametrize("record", RECORDS)
def test_a_rollout_comes_back_with_every_channel(record: Record) -> None:
    count = len(record.ids)
    rollout = Rollout(
        key=2**63 - 1,
        prompt_ids=torch.tensor([5, 6]),
        response_ids=torch.tensor([7, 8, 9]),
        log_probs=torch.randn(3),
        mixture=Mixture(torch.arange(2, 2 + count), record),
        stop_reason=StopReason.LENGTH,
        prefix_length=1,
        support=Support.of(torch.tensor([[-1, -1], [8, 2], [9, -1]])),
        distributions=Distributions(
            torch.rand(3),
            torch.tensor([[-1, -1], [8, 2], [9, -1]], dtype=torch.int32),
            torch.tensor([[-torch.inf, -torch.inf], [-0.5, -0.9], [0.0, -torch.inf]]),
        ),
    )
    back = rollout_of(through_json(rollout_message(rollout)), (5, 6))
    assert (back.key, back.stop_reason, back.prefix_length) == (2**63 - 1, StopReason.LENGTH, 1)
    for name in ("prompt_ids", "response_ids", "log_probs"):
        assert same(getattr(back, name), getattr(rollout, name)), name
    assert same(back.mixture.positions, rollout.mixture.positions)
    assert all(same(a, b) for a, b in zip(back.mixture.record, record, strict=True))
    assert back.support is not None
    assert back.support.rows().tolist() == [[-1, -1], [8, 2], [9, -1]]
    assert back.distributions is not None
    assert all(same(a, b) for a, b in zip(back.distributions, rollout.distributions or (), strict=True))
    bare = rollout_of(through_json(rollout_message(replace(rollout, support=None, distributions=None))), (5, 6))
    assert bare.support is bare.distributions is None


def test_a_request_says_only_what_is_not_as_usual() -> None:
    assert request_message(Request((1, 2), 3)) == {"prompt_ids": [1, 2], "key": 3}
    steered = through_json(request_message(Request((1, 2), 3, forced_token=0, likeliest=True)))
    assert (steered["forced_token"], steered["likeliest"]) == (0, True)
    assert sampling_message(Sampling(1.0, 4, ())) == {"temperature": 1.0, "max_new_tokens": 4, "stop_ids": []}
    assert sampling_message(Sampling(1.0, 4, (), distributions=True))["distributions"] is True
    prefix = Prefix((4,), Mixture(torch.tensor([2]), WHOLE.map(lambda channel: channel[:1])))
    message = through_json(request_message(Request((1, 2), 3, explore=False, prefix=prefix, expected_tokens=9)))
    assert (message["explore"], message["expected_tokens"]) == (False, 9)
    back = prefix_of(tuple(message["prefix"]["ids"]), message["prefix"]["mixture"])
    assert back.ids == (4,)
    assert back.mixture is not None
    assert same(back.mixture.record.vector, WHOLE.map(lambda channel: channel[:1]).vector)


GOOD = tensor_message(torch.zeros(2))


@pytest.mark.parametrize(
    "message",
    [
        None, 3, [], {}, GOOD | {"dtype": "object"}, GOOD | {"dtype": []}, GOOD | {"shape": 2}, GOOD | {"shape": [-1]},
        GOOD | {"shape": [3]}, GOOD | {"shape": ["x"]}, GOOD | {"base64": "!"}, GOOD | {"base64": 5},
        GOOD | {"shape": [2**40, 2**40]},
    ],
)  # fmt: skip
def test_what_is_no_tensor_is_refused(message: Any) -> None:
    with pytest.raises(SettingError):
        tensor_of(message)


@pytest.mark.parametrize("message", [None, {}, {"positions": GOOD}, [1]])
def test_what_is_no_mixture_is_refused(message: Any) -> None:
    with pytest.raises(SettingError):
        mixture_of(message)


def test_no_channel_is_made_up() -> None:
    assert set(mixture_message(Mixture(torch.tensor([1]), RECORDS[1]))) == {"positions", "ids", "weights"}
