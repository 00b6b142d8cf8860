"""Checks of settings against the model's files, its tokenizer and the machine, before any model is loaded.

See `ngrpo.entrypoints.validation` for which check belongs where.
"""

import os
from dataclasses import fields, is_dataclass
from inspect import get_annotations
from typing import Any

import torch
from omegaconf import DictConfig
from transformers import PretrainedConfig

from ngrpo.config.schema import TrainerConfig
from ngrpo.entrypoints.components import Components
from ngrpo.entrypoints.exact_check import check_exact
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.embedding_scale import check_rows
from ngrpo.modeling.loading import DTYPES, ModelSource
from ngrpo.modeling.lora import check_targets
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.rope import positions_of
from ngrpo.modeling.tensor_parallel import check_split
from ngrpo.planning.meta_model import meta_model
from ngrpo.rollout.engine import InstalledEngine, RolloutEngine
from ngrpo.utils.torch_settings import accelerator_of

_FEW = 8
"""Processes that may share cores, to try what several do."""

_ACCELERATORS = ("auto", "cpu", "gpu")


def check_training_inputs(parts: Components, config: DictConfig) -> Any:
    """Checks a training against its model; see `check_inputs`."""
    check_model(parts, config)
    return check_inputs(parts.source, parts.exploration, parts.engine, config, parts.requests)


def check_model(parts: Components, config: DictConfig) -> None:
    """Checks a training against its model's ``config.json`` alone."""
    model = parts.source.config()
    check_split(model, parts.tensor_parallel_size)
    check_mixtures(parts.exploration, model)
    check_context(model, config.data.max_prompt_tokens, config.rollout.max_new_tokens)


def check_inputs(
    source: ModelSource, exploration: Exploration, engine: RolloutEngine, config: DictConfig, requests: int
) -> Any:
    """Checks settings that training and evaluation have in common against the model.

    Args:
        source: the model.
        exploration: the strategy of the rollouts.
        engine: makes them.
        config: of the script.
        requests: rollouts at once.

    Returns:
        The tokenizer, which fits the model.

    Raises:
        SettingError: something does not fit.
    """
    check_exact(source, exploration, engine, config)
    if isinstance(engine, InstalledEngine):
        engine.check_installed()
    source.check_files()
    check_modules(source, exploration)
    model, max_new_tokens = source.config(), config.rollout.max_new_tokens
    check_context(model, config.data.max_prompt_tokens, max_new_tokens)
    engine.check_load(exploration, requests, max_new_tokens)
    tokenizer = source.tokenizer()
    check_tokens(source, tokenizer, model)
    check_end_token(exploration, tokenizer)
    check_template(source, tokenizer, config.data.get("plain_prompts", False))
    return tokenizer


def check_modules(source: ModelSource, exploration: Exploration) -> None:
    """Checks adapters and strategy against the modules of the model, of which no weights are read."""
    check_rows(source, exploration)
    if source.lora is not None:
        policy: ScoringModel = meta_model(source.config(), DTYPES[source.dtype], None, source.trust_remote_code)
        check_targets(policy.lm, source.lora)


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
    check_processes(config)
    check_devices(config.devices, config.accelerator, "trainer.devices")


def check_processes(config: TrainerConfig) -> None:
    """The processes must be numbers, on whatever machine."""
    if type(config.num_nodes) is not int or config.num_nodes < 1:
        raise SettingError(f"trainer.num_nodes={config.num_nodes} is no number of processes; choose 1 or more.")
    check_count(config.devices, "trainer.devices")


def check_count(devices: Any, setting: str) -> None:
    """The processes of a machine must be a number, or "auto"."""
    if devices != "auto" and (type(devices) is not int or devices < 1):
        raise SettingError(f"{setting}={devices} is no number of processes; choose 1 or more, or auto.")


def check_devices(devices: Any, accelerator: str, setting: str) -> None:
    """They must be a number, or "auto", and there.

    Args:
        devices: processes on this machine, one a device.
        accelerator: of which kind.
        setting: that gives them.
    """
    check_count(devices, setting)
    if devices == "auto":
        return
    on_gpu = accelerator_of(accelerator) == "gpu"
    cores = os.cpu_count() or 1
    if not on_gpu and devices > max(cores, _FEW):
        raise SettingError(
            f"{setting}={devices} is more than the {cores} cores of this machine, and each process needs one; lower it."
        )
    if on_gpu and devices > torch.cuda.device_count():
        raise SettingError(
            f"{setting}={devices} is more than the {torch.cuda.device_count()} GPUs of this machine; lower it, or set "
            f"{setting}=auto."
        )


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
    own = get_annotations(type(exploration))  # a base class may have a number that is the same
    names: list[str] = [field.name for field in fields(exploration)] if is_dataclass(exploration) else []
    names.sort(key=lambda name: name not in own)
    return next((name for name in names if getattr(exploration, name) == exploration.width), "width")


def check_context(config: PretrainedConfig, max_prompt_tokens: int, max_new_tokens: int) -> None:
    """Prompt and response must fit the positions that the model can be run on with one set of frequencies."""
    limit = positions_of(config)
    if limit is not None and max_prompt_tokens + max_new_tokens > limit:
        raise SettingError(
            f"data.max_prompt_tokens={max_prompt_tokens} + rollout.max_new_tokens={max_new_tokens} exceeds the "
            f"model's {limit} positions; lower one of them."
        )
