"""The check whether the state of a user's own object can be saved in a checkpoint and read again."""

from io import BytesIO
from typing import Any

import torch
from lightning import Callback
from omegaconf import DictConfig

from ngrpo.config.allowlist import ALLOWED, below
from ngrpo.errors import SettingError, first_line


def check_state(setting: str, state: Any) -> None:
    """Refuses what would be found unreadable when the run is resumed.

    Raises:
        SettingError: the state is no dictionary, or holds what a checkpoint does not.
    """
    if state is None:
        return
    if not isinstance(state, dict):
        raise SettingError(f"{setting} has a state_dict() of type {type(state).__name__}; return a dictionary.")
    content = BytesIO()
    try:
        torch.save(state, content)
        content.seek(0)
        torch.load(content, weights_only=True)
    except Exception as error:
        raise SettingError(
            f"{setting} has a state that no checkpoint can hold ({first_line(error)}); let state_dict() return "
            "numbers, text, tensors, lists and dictionaries."
        ) from error


def check_callback(name: str, node: DictConfig, made: Callback) -> None:
    """The same of a callback of the user's own.

    Raises:
        SettingError: see `check_state`.
    """
    if below(node["_target_"], ALLOWED):
        return
    try:
        state = made.state_dict()
    except AttributeError:
        return  # what its state is made of may be set when the training starts
    check_state(f"callbacks.{name}", state)
