"""A callback whose state no checkpoint can hold is refused before the training; what can be saved is left alone."""

import threading
from typing import Any

import pytest
import torch
from lightning import Callback
from omegaconf import OmegaConf

from ngrpo.entrypoints.state_check import check_callback
from ngrpo.errors import SettingError

OWN = OmegaConf.create({"_target_": "mine.Counting"})


class Counting(Callback):
    def __init__(self, state: Any) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state


@pytest.mark.parametrize("state", [{}, {"sums": torch.ones(2), "names": ["a"], "by": {1: None}}], ids=["none", "some"])
def test_a_state_that_can_be_read_again_passes(state: Any) -> None:
    check_callback("mine", OWN, Counting(state))


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"lock": threading.Lock()}, r"^callbacks.mine has a state that no checkpoint can hold \(.*\); let state_dict"),
        ({"own": Counting(1)}, r"^callbacks.mine has a state that no checkpoint can hold \(.*\); let state_dict"),
        ([1], r"^callbacks.mine has a state_dict\(\) of type list; return a dictionary\.$"),
    ],
    ids=["a lock", "an object", "a list"],
)
def test_another_is_refused(state: Any, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        check_callback("mine", OWN, Counting(state))
    check_callback("theirs", OmegaConf.create({"_target_": "ngrpo.callbacks.health.Health"}), Counting(state))


def test_a_state_that_training_sets_up_is_left_alone() -> None:
    made = Counting({})
    del made.state
    check_callback("mine", OWN, made)
