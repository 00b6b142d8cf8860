"""Responses to prompts, sampled as the rollouts of a training are."""

from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig

from ngrpo.config.instantiate import build, build_kind
from ngrpo.config.ranges import check_finite
from ngrpo.data.chat import PromptBuilder
from ngrpo.data.chat_template import chat_format, fix_date
from ngrpo.entrypoints.engine_choice import choose_for_sampling, tell
from ngrpo.entrypoints.engine_comparison import check_engine
from ngrpo.entrypoints.input_validation import check_accelerator, check_inputs, check_mixtures
from ngrpo.entrypoints.sampled_rollout import SampledRollout
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.random import request_key
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.learned import load_learned
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.model_in_memory import ModelInMemory
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.rollout.nonfinite_scores import warn_of_nonfinite
from ngrpo.rollout.recovery import engine_failures
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.problems import Excluded, Message, Problem, Prompt
from ngrpo.types.rollouts import Request, Sampling
from ngrpo.utils.torch_settings import accelerator_of, set_torch

Asked = str | Sequence[Message]
"""A question, or a conversation as messages with ``role`` and ``content``, the last one the user's."""


def draw_samples(
    config: DictConfig, source: ModelSource, asked: Sequence[Asked], given: Exploration | None = None
) -> list[SampledRollout]:
    """Samples ``n`` responses to each prompt.

    Args:
        config: composed from ``conf/sample.yaml``, checked.
        source: the model.
        asked: the prompts.
        given: a strategy in place of the one in the configuration.

    Raises:
        SettingError: a setting or a prompt cannot work; raised before the model is loaded.
        EngineFailure: the engine makes no rollouts.
    """
    if config.n < 1:
        raise SettingError(f"n={config.n} samples nothing; choose 1 or more.")
    set_torch(config.threads, config.matmul_precision)
    check_accelerator(config.accelerator, "accelerator", "accelerator=cpu")
    strategy: Exploration = build_kind(Exploration, config.exploration) if given is None else given
    settings = RolloutSettings(max_new_tokens=config.rollout.max_new_tokens, temperature=config.rollout.temperature)
    check_finite(config)
    check_mixtures(strategy, source.config())
    choice = choose_for_sampling(config, source, strategy, len(asked) * config.n)
    engine: RolloutEngine = build(config.rollout.engine, model=source, exploration=strategy, exact=config.rollout.exact)
    if isinstance(source, ModelInMemory) and not isinstance(engine, TorchEngine):
        raise SettingError(
            f"rollout.engine={type(engine).__name__} loads a model from its files, and this one is in memory; set "
            "rollout=torch, or save the model and give its folder."
        )
    tokenizer = check_inputs(source, strategy, engine, config, len(asked) * config.n)
    prompts = _prompts(config, tokenizer, asked)
    requests = [
        Request(prompt.ids, request_key(config.seed, prompt.problem.key, number))
        for prompt in prompts
        for number in range(config.n)
    ]
    sampling = Sampling(settings.temperature, settings.max_new_tokens, source.stop_ids(tokenizer))
    tell(choice)
    try:
        with engine_failures():
            engine.start(torch.device("cuda" if accelerator_of(config.accelerator) == "gpu" else "cpu"))
            table = engine.embedding()
        bound = bind(strategy, table, Vocabulary.of(tokenizer), load_learned(source, strategy))
        check_engine(engine, bound, source, config, len(tokenizer))
        with engine_failures(strategy):
            rollouts = engine.generate(requests, sampling, bound)
        warn_of_nonfinite(rollouts, engine)
    finally:
        engine.close()
    questions = [prompt.problem.conversation[-1]["content"] for prompt in prompts for _ in range(config.n)]
    return [
        SampledRollout.of(rollout, tokenizer, question, strategy, settings.temperature)
        for rollout, question in zip(rollouts, questions, strict=True)
    ]


def _prompts(config: DictConfig, tokenizer: Any, asked: Sequence[Asked]) -> list[Prompt]:
    fix_date(config.data, tokenizer, None)
    build_prompt = PromptBuilder(tokenizer, config.data.max_prompt_tokens, chat=chat_format(config.data))
    return [_prompt(build_prompt, number, one) for number, one in enumerate(asked)]


def _prompt(build_prompt: PromptBuilder, number: int, asked: Asked) -> Prompt:
    if isinstance(asked, str):
        problem = Problem(number, asked, answer="")
    else:
        problem = Problem(number, asked[-1]["content"], answer="", messages=tuple(asked))
    made = build_prompt(problem)
    if isinstance(made, Excluded):
        raise SettingError(
            f"prompt {number + 1} cannot be used ({made.reason.replace('_', ' ')}); change it, or raise "
            f"data.max_prompt_tokens={build_prompt.max_prompt_tokens}."
        )
    return made
