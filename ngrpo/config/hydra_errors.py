"""The one sentence for a mistake on the command line that Hydra or OmegaConf complains of."""

import re
import traceback
from difflib import get_close_matches

from hydra._internal.config_repository import IConfigRepository
from hydra.errors import OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException

from ngrpo.config.removed_choices import preset_refusal
from ngrpo.errors import SettingError, first_line

_UNKNOWN_KEY = re.compile(r"Could not override '([^']+)'")
_UNKNOWN_OPTION = re.compile(r"Could not find '([^']+)'\s+Available options in '([^']+)':(.*?)Config", re.S)
_UNKNOWN_FILE = re.compile(r"Could not (?:load|find) '([^']+)/([^'/]+)'")
_WRONG_TYPE = re.compile(r"Error merging override (\S+=.*)")
ONLY_VLLM = (
    "gpu_memory_utilization",
    "tensor_parallel_size",
    "enforce_eager",
    "own_process",
    "enable_sleep_mode",
    "check",
    "options",
)
"""Settings of ``rollout.engine`` that are vLLM's alone."""

_LONGEST = 200
"""Characters of an override that a sentence quotes."""

_HOMES = ("/hydra/", "/omegaconf/", "/antlr4/", "/site-packages/yaml/")


def from_composing(error: BaseException) -> bool:
    """Says whether an error was raised inside Hydra or OmegaConf."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and any(home in frames[-1].filename for home in _HOMES)


def composition_sentence(error: BaseException) -> str:
    """Returns setting, value and remedy, as far as the error tells them."""
    text, cause = str(error), error.__cause__ or error
    if (typed := _typed_for_preset(error)) is not None:
        return f"{typed} is not how a preset is chosen; give the name of one, or a list of names."
    if isinstance(error, OverrideParseException):  # whose text names the override in few of its kinds
        typed = error.override if len(error.override) <= _LONGEST else f"{error.override[:_LONGEST]}..."
        return (
            f"{typed!r} is no setting=value; write it like trainer.iterations=10, and quote what has braces, brackets "
            "or =, as in 'data.instruction=\"Use \\boxed{}.\"'."
        )
    if found := _WRONG_TYPE.search(text):
        return f"{found[1].strip()} has a value of another type ({first_line(cause)}); change it."
    if found := _UNKNOWN_OPTION.search(text):
        path, group, options = found.groups()
        name = path.removeprefix(f"{group}/")
        known = f"{group}={name} is not known; choose one of {', '.join(options.split())}."
        return preset_refusal(group, name) or known
    if found := _UNKNOWN_FILE.search(text):
        return f"{found[1]}={found[2]} is not known; see the files of conf/{found[1]}."
    if found := _UNKNOWN_KEY.search(text):
        return f"{found[1]} is no setting{_alternative(found[1], cause)}."
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} has no value; set it."
    if isinstance(error, ConfigKeyError):
        return f"{error.full_key} is no setting{_alternative(str(error.full_key), error)}."
    if isinstance(error, OmegaConfBaseException):
        said = _refusal_within(error) or f"{first_line(error)}; change it."
        return f"{error.full_key or 'the configuration'}: {said}"
    return "; ".join(line.strip().rstrip(".") for line in text.splitlines() if line.strip()) + "."


def _typed_for_preset(error: BaseException) -> str | None:
    """Returns the override that gives a group something else than names of presets, which Hydra's messages leave out.

    It is looked for where Hydra was reading the overrides.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        groups, overrides = frame.f_locals.get("repo"), frame.f_locals.get("overrides_list")
        if not isinstance(groups, IConfigRepository) or not isinstance(overrides, list):
            continue
        for one in overrides:
            if one.is_sweep_override() or one.is_delete() or not groups.group_exists(one.key_or_group):
                continue
            value = one.value()
            names = value if isinstance(value, list) else [value]
            if not isinstance(value, dict) and not all(isinstance(name, str) for name in names):
                return str(one.input_line)
    return None


def _refusal_within(error: BaseException | None) -> SettingError | None:
    """Returns what one of our resolvers has raised, if one has."""
    while error is not None and not isinstance(error, SettingError):
        error = error.__cause__ or error.__context__
    return error


def _alternative(name: str, cause: BaseException) -> str:
    parent = getattr(cause, "parent_node", None)
    known = [str(key) for key in parent] if isinstance(parent, DictConfig) else []
    place, _, key = name.rpartition(".")
    if place == "rollout.engine" and key in ONLY_VLLM:
        return " of rollout=auto or rollout=torch; set rollout=vllm, whose engine has it"
    near = get_close_matches(key, known, n=1)
    if near:
        return f"; the nearest is {f'{place}.{near[0]}'.lstrip('.')}"
    if known == ["_target_"]:
        return f" of the preset; if a class of yours takes it, write +{name}"
    known = [key for key in known if key not in ("hydra", "_target_", "_partial_")]
    return f"; {place or 'the configuration'} has {', '.join(known)}" if known else "; --cfg job shows what there is"
