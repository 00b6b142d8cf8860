"""Requests that would have to be cut are refused in one sentence."""

from dataclasses import replace

import pytest
import torch

from ngrpo.errors import SettingError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.rollout.request_limits import check_requests
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Prefix, Request, Sampling

SAMPLING = Sampling(1.0, 8, stop_ids=(0,))
STRATEGY = NeighborMixing(k=3)
SOUND = Request((5, 6, 7), 1)


def mixed_at(*positions: int, k: int = 3) -> Mixture:
    mixed = len(positions)
    return Mixture(torch.tensor(positions), Record(torch.zeros(mixed, k, dtype=torch.int32), torch.zeros(mixed, k)))


def check(*requests: Request, sampling: Sampling = SAMPLING) -> None:
    check_requests(requests, sampling, STRATEGY, max_tokens=11, vocabulary=50)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"prompt_ids": ()}, "request 1 has an empty prompt"),
        ({"prompt_ids": (1,) * 4}, "request 1 has 4 prompt tokens, which with max_new_tokens=8 are more than the 11"),
        ({"prompt_ids": (1, 50)}, "request 1 has token 50, .* vocabulary of 50"),
        ({"prompt_ids": (1, -1)}, "request 1 has token -1, .* vocabulary of 50"),
        ({"prefix": Prefix((3, 50))}, "request 1 has token 50, .* vocabulary of 50"),
        ({"prefix": Prefix((1,) * 8)}, "request 1 has a prefix of 8 tokens, which leaves none of max_new_tokens=8"),
        ({"prefix": Prefix((1, 2), mixed_at(3, k=2))}, "another kind of strategy than NeighborMixing"),
    ],
)
def test_what_cannot_be_served_as_it_is(broken: dict[str, object], said: str) -> None:
    with pytest.raises(SettingError, match=said) as caught:
        check(SOUND, replace(SOUND, **broken))  # type: ignore[arg-type]
    assert str(caught.value).endswith(".")


def test_stop_tokens_outside_of_the_vocabulary() -> None:
    with pytest.raises(SettingError, match="stop token 50 is no id of the model's vocabulary of 50"):
        check(SOUND, sampling=replace(SAMPLING, stop_ids=(0, 50)))


def test_all_up_to_the_limits_is_taken() -> None:
    longest = Prefix((49,) * 7, mixed_at(3, 9))
    check(SOUND, replace(SOUND, prefix=longest), replace(SOUND, prefix=Prefix((0,), mixed_at(3))))
