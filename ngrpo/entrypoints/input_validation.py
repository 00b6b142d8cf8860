"""Faults of settings that show only against the tokenizer, the model or the machine; found before a model is loaded."""

import os
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import torch
from omegaconf import DictConfig
from torch.optim import Optimizer
from transformers import PretrainedConfig

from ngrpo.algo.policy_loss import Algorithm
from ngrpo.config.schema import TrainerConfig
from ngrpo.errors import SettingError, first_line
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource

_SEEDS = 2**32
_FEW = 8
"""Processes that may share cores, to try what several do."""

_ACCELERATORS = ("auto", "cpu", "gpu")


def check_seed(seed: int) -> None:
    """NumPy takes 32 bits."""
    if not 0 <= seed < _SEEDS:
        raise SettingError(f"seed={seed} is not in [0, {_SEEDS}); choose another.")


def check_accelerator(name: str, setting: str, remedy: str) -> None:
    """It must be known, and there.

    Args:
        name: of the accelerator.
        setting: that gives it.
        remedy: a setting that does without one.
    """
    if name not in _ACCELERATORS:
        raise SettingError(f"{setting}={name} is not known; choose one of {', '.join(_ACCELERATORS)}.")
    if name == "gpu" and not torch.cuda.is_available():
        raise SettingError(f"{setting}=gpu finds no CUDA device here; set {remedy}, or fix the driver.")


def check_hardware(config: TrainerConfig) -> None:
    """The processes must be a number, and have devices."""
    check_accelerator(config.accelerator, "trainer.accelerator", "trainer=cpu")
    for name in ("devices", "num_nodes"):
        value = getattr(config, name)
        if value == "auto" and name == "devices":
            continue
        if type(value) is not int or value < 1:
            raise SettingError(f"trainer.{name}={value} is no number of processes; choose 1 or more.")
    on_gpu = config.accelerator == "gpu" or (config.accelerator == "auto" and torch.cuda.is_available())
    cores = os.cpu_count() or 1
    if not on_gpu and config.devices != "auto" and config.devices > max(cores, _FEW):
        raise SettingError(
            f"trainer.devices={config.devices} is more than the {cores} cores of this machine, and each process needs"
            " one; lower it."
        )
    if on_gpu and config.devices != "auto" and config.devices > torch.cuda.device_count():
        raise SettingError(
            f"trainer.devices={config.devices} is more than the {torch.cuda.device_count()} GPUs of this machine; lower"
            " it, or set trainer.devices=auto."
        )


def check_optimizer(make: Callable[[Iterable[Any]], Optimizer], setting: str, node: DictConfig) -> None:
    """Optimisers check their settings when they get parameters; here they get one that is thrown away."""
    try:
        make([torch.nn.Parameter(torch.zeros(1))])
    except (ValueError, TypeError, AttributeError) as error:
        settings = ", ".join(f"{name!s}={value}" for name, value in node.items() if not str(name).startswith("_"))
        raise SettingError(f"{setting} with {settings} cannot be built ({first_line(error)}); change it.") from error


def check_schedule(schedule: Callable[[int], float]) -> None:
    """The first factor must be one that a learning rate can be multiplied with."""
    factor = schedule(0)
    if not 0.0 <= factor < float("inf"):
        raise SettingError(
            f"trainer.schedule multiplies the first learning rate by {factor}; choose warmup >= 0 and floor in [0, 1]."
        )


def check_clip(algorithm: Algorithm) -> None:
    """The numbers of the functions that an algorithm is made of."""
    clip, advantage = _keywords(algorithm.clip), _keywords(algorithm.advantage)
    for name, value in clip.items():
        least = 1.0 if name == "dual" else 0.0
        if isinstance(value, int | float) and not value >= least:
            raise SettingError(f"algo.clip.{name}={value} bounds nothing; choose {least:g} or more.")
    if not advantage.get("eps", 1.0) > 0:
        raise SettingError(f"algo.advantage.eps={advantage['eps']} may divide by zero; choose a small positive number.")


def check_tokens(source: ModelSource, tokenizer: Any, config: PretrainedConfig) -> None:
    """Every token needs a row of the embedding; rows that no token has are usual."""
    largest = max(tokenizer.get_vocab().values())
    if largest >= config.vocab_size:
        raise SettingError(
            f"model.path={source.path} has {config.vocab_size} embedding rows, and its tokenizer ids up to {largest};"
            " take the tokenizer that the model was trained with."
        )


def check_mixtures(exploration: Exploration, config: PretrainedConfig) -> None:
    """No mixture has more ids than there are; nor may an id be named that does not exist."""
    if exploration.width > config.vocab_size:
        name, width = _width_setting(exploration), exploration.width
        raise SettingError(
            f"exploration.{name}={width} is more than the {config.vocab_size} tokens of the model; lower it."
        )
    if exploration.refresh_every < 0:
        raise SettingError(f"exploration.refresh_every={exploration.refresh_every} is negative; 0 means never.")
    unknown = [number for number in getattr(exploration, "excluded_ids", ()) if not 0 <= number < config.vocab_size]
    if unknown:
        raise SettingError(
            f"exploration.excluded_ids={unknown} are no ids of the model's {config.vocab_size} tokens; take them out."
        )


def check_end_token(exploration: Exploration, tokenizer: Any) -> None:
    """A token that a user names must exist; one that a strategy names by default is for the models that have it."""
    named, default = exploration.end_token, getattr(type(exploration), "end_token", None)
    if named is None or named == default or Vocabulary.of(tokenizer).end_ids(named):
        return
    raise SettingError(
        f"exploration.end_token={named!r} is none of the tokens that were added to the tokenizer's vocabulary, so that"
        " nothing would ever end the reasoning; name one of them, or set exploration.end_token=null."
    )


def check_template(source: ModelSource, tokenizer: Any, plain: bool) -> None:
    """A model that was trained on chats and gets plain text is not what the user means."""
    if not tokenizer.chat_template and not plain:
        raise SettingError(
            f"model.path={source.path} has a tokenizer without chat template; save one with it, or set "
            "data.plain_prompts=true to give the model the bare question."
        )


def _width_setting(exploration: Exploration) -> str:
    """Returns the name of the setting that the width comes from."""
    names: list[str] = [field.name for field in fields(exploration)] if is_dataclass(exploration) else []
    return next((name for name in names if getattr(exploration, name) == exploration.width), "width")


def _keywords(function: Any) -> dict[str, Any]:
    return function.keywords if isinstance(function, partial) else {}
