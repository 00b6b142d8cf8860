"""``ngrpo.sample``: responses to prompts."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ngrpo.config.check import checked
from ngrpo.config.schema import SampleConfig
from ngrpo.data.sources.conversation import read_messages
from ngrpo.data.sources.problem_text import check_text
from ngrpo.entrypoints.composition import composed
from ngrpo.entrypoints.python_api.arguments import folder_of, words_given
from ngrpo.entrypoints.python_api.model_argument import Model, source_of, words_for
from ngrpo.entrypoints.python_api.session import session
from ngrpo.entrypoints.sample import Asked, draw_samples
from ngrpo.entrypoints.sampled_rollout import SampledRollout
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.utils.given_values import plain, shown

_FORM = "a text, a list of messages with role and content of which the last is the user's, or a list of these"
_NO_LISTS = (bytes, Mapping, set, frozenset)
"""Iterables that give something else than prompts in their order, as a table does, which gives names of columns."""


def sample(
    model: Model,
    prompts: Asked | Iterable[Asked],
    *overrides: str,
    exploration: str | Mapping[str, Any] | Exploration = "token",
    n: int = 1,
    tokenizer: Any = None,
    config_dir: Path | str | None = None,
    verbose: bool = False,
    **settings: Any,
) -> list[SampledRollout]:
    """Samples responses, as the rollouts of a training are sampled.

    Args:
        model: a folder, a hub name, ``"demo"``, or a causal language model of transformers, of which a copy is used.
        prompts: one, or several in a list or from a generator; each goes through the model's chat template.
        overrides: settings of conf/sample.yaml, such as ``"rollout.temperature=0.7"``.
        exploration: the strategy: a preset, a preset with changes (``{"name": "neighbor", "rate": 0.2}``), or an object
            of your own.
        n: responses to each prompt.
        tokenizer: of a model in memory.
        config_dir: a folder of yaml files and modules of yours.
        verbose: shows what is logged.
        settings: further settings by group, such as ``rollout="vllm"``, ``seed=1``.

    Returns:
        The rollouts, n to a prompt and prompt after prompt; the same for the same seed.

    Raises:
        SettingError: a setting or a prompt cannot work.
    """
    strategy = None
    if isinstance(exploration, Exploration):
        strategy, exploration = exploration, "token"
    if isinstance(exploration, type) and issubclass(exploration, Exploration):
        name = exploration.__name__
        raise SettingError(f"exploration={name} is the class of strategies; give one of them, such as {name}().")
    words = [*words_for(model), *words_given({"exploration": exploration, "n": n, **settings}, overrides)]
    asked = _several(prompts)
    with session(verbose):
        config = checked(composed("sample", words, folder_of(config_dir)).config, SampleConfig)
        return draw_samples(config, source_of(model, tokenizer, config), asked, strategy)


def _several(prompts: Any) -> list[Asked]:
    """Returns one or several prompts as a list; messages alone are one conversation."""
    prompts = plain(prompts)
    if isinstance(prompts, str):
        return [_prompt("prompts", prompts)]
    if not isinstance(prompts, Iterable) or isinstance(prompts, _NO_LISTS) or len(getattr(prompts, "shape", ())) > 1:
        raise SettingError(f"prompts={shown(prompts)} are neither a prompt nor a list of them; give {_FORM}.")
    given = list(prompts)
    if given and all(isinstance(one, Mapping) for one in given):
        return [_prompt("prompts", given)]
    return [_prompt(f"prompts[{index}]", one) for index, one in enumerate(given)]


def _prompt(name: str, given: Any) -> Asked:
    listed = given.tolist() if isinstance(given, np.ndarray) else given  # pandas reads lists of a parquet file so
    messages = str(listed) if isinstance(listed, str) else read_messages(listed)
    if messages is None:
        raise SettingError(f"{name}={shown(given)} is neither text nor a conversation; give {_FORM}.")
    for text in [messages] if isinstance(messages, str) else [message["content"] for message in messages]:
        check_text(name, text)
    return messages
