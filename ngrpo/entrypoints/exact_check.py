"""The checks of ``rollout.exact``: that engine, model, strategy and trainer can give a token the same log-prob."""

from collections.abc import Iterator

import torch
from omegaconf import DictConfig

from ngrpo.entrypoints.components import Components
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.exact.model import check_exact_model
from ngrpo.modeling.loading import DTYPES, ModelSource
from ngrpo.modeling.tensor_parallel import SETTING
from ngrpo.rollout.engine import RolloutEngine


def check_exact(source: ModelSource, exploration: Exploration, engine: RolloutEngine, config: DictConfig) -> None:
    """Checks what concerns every script with an engine; reads the model's ``config.json``.

    Args:
        source: the model.
        exploration: the strategy of the rollouts.
        engine: makes them.
        config: of the script.

    Raises:
        SettingError: one of them cannot be exact.
    """
    if not config.rollout.exact:
        return
    # Engines of a user's own have it or not.
    if not getattr(engine, "exact", False):
        raise SettingError(
            f"rollout.exact=true needs an engine that computes as the trainer does, and rollout.engine="
            f"{type(engine).__name__} does not; set rollout=torch, or rollout.exact=false."
        )
    check_exact_scores(source, exploration)


def check_exact_scores(source: ModelSource, exploration: Exploration) -> None:
    """Checks what gives scores; reads the model's ``config.json``.

    Args:
        source: the model.
        exploration: the strategy of the rollouts.

    Raises:
        SettingError: one of them cannot be exact.
    """
    if not exploration.scores_tokens:
        raise SettingError(
            f"rollout.exact=true is known to hold for the log-probs of tokens, and exploration="
            f"{type(exploration).__name__} scores densities; set rollout.exact=false, or choose another strategy."
        )
    check_exact_model(source.config())


def check_exact_training(parts: Components, config: DictConfig) -> None:
    """Checks what a training may set besides.

    Raises:
        SettingError: the trainer would compute otherwise than the engine.
    """
    if parts.rollout.exact:
        for setting, why, remedy in _obstacles(parts, config):
            raise SettingError(f"{setting} {why}, and rollout.exact=true allows no difference; set {remedy}.")


def _obstacles(parts: Components, config: DictConfig) -> Iterator[tuple[str, str, str]]:
    """Yields settings with which log-probs would differ: each with its value, the reason and the remedy."""
    source, trainer = parts.source, config.trainer
    computed, served = parts.update.mixed_in or DTYPES[source.dtype], parts.engine.dtype
    if computed != served and parts.update.mixed_in is None:
        yield (
            f"rollout.engine.dtype={_name(served)}",
            f"computes in another dtype than model.dtype={source.dtype}",
            "rollout.engine.dtype=auto",
        )
    elif computed != served:
        yield (
            f"trainer.precision={trainer.precision}",
            f"computes in {_name(computed)} what the engine computes in {_name(served)}",
            "trainer.precision=32-true, with the dtype of both in model.dtype",
        )
    if source.compile:
        yield "model.compile=true", "rounds otherwise than the engine", "model.compile=false"
    if source.checkpointing == "selective":
        yield (
            "model.checkpointing=selective",
            "keeps the results of PyTorch's own products",
            "model.checkpointing=full or off",
        )
    if source.lora is not None:
        yield (
            f"model.lora.rank={source.lora.rank}",
            "adds to each product what the engine has merged into its weights",
            "model.lora=null",
        )
    if parts.tensor_parallel_size > 1:
        yield (
            f"{SETTING}={parts.tensor_parallel_size}",
            "adds up parts of a product that several processes made",
            f"{SETTING}=1",
        )
    if trainer.matmul_precision != "highest":
        yield (
            f"trainer.matmul_precision={trainer.matmul_precision}",
            "rounds some float32 products by their shape",
            "trainer.matmul_precision=highest",
        )
    if parts.rollout.ahead:
        yield f"rollout.ahead={parts.rollout.ahead}", "trains on rollouts of older weights", "rollout.ahead=0"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
