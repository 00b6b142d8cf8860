"""``ngrpo.sample``: responses to prompts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ngrpo.config.check import checked
from ngrpo.config.schema import SampleConfig
from ngrpo.entrypoints.composition import composed
from ngrpo.entrypoints.override_words import words_of
from ngrpo.entrypoints.python_api.model_argument import Model, source_of, words_for
from ngrpo.entrypoints.python_api.session import session
from ngrpo.entrypoints.sample import Asked, draw_samples
from ngrpo.entrypoints.sampled_rollout import SampledRollout
from ngrpo.exploration.base import Exploration
from ngrpo.types.problems import Message


def sample(
    model: Model,
    prompts: Asked | Sequence[Asked],
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
        prompts: one or several; each goes through the model's chat template.
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
    words = [*words_of({"exploration": exploration, "n": n, **settings}), *overrides]
    with session(verbose):
        folder = None if config_dir is None else Path(config_dir)
        config = checked(composed("sample", [*words_for(model), *words], folder).config, SampleConfig)
        return draw_samples(config, source_of(model, tokenizer, config), _several(prompts), strategy)


def _several(prompts: Asked | Sequence[Asked]) -> list[Asked]:
    if isinstance(prompts, str):
        return [prompts]
    # A sequence of messages is one conversation.
    messages: list[Message] = [one for one in prompts if isinstance(one, Mapping)]
    return [messages] if messages else [one for one in prompts if not isinstance(one, Mapping)]
