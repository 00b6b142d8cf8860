"""The registry that says how a logger takes media; what it cannot take is left out without a word."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from lightning import Trainer
from lightning.pytorch.loggers import Logger, TensorBoardLogger

from ngrpo.loggers.media import Medium
from ngrpo.loggers.tensorboard_media import TensorBoardMedia


@runtime_checkable
class MediaLogger(Protocol):
    """What takes media: an adapter of a logger, or a logger that does so itself."""

    def log_media(self, media: Mapping[str, Medium], step: int) -> None:
        """Logs media by tag.

        Args:
            media: by tag; a kind that the logger has nothing for is left out.
            step: finished iterations, as for metrics.
        """


_ADAPTERS: dict[type[Any], Callable[[Any], MediaLogger]] = {TensorBoardLogger: TensorBoardMedia}


def register(kind: type[Any], adapter: Callable[[Any], MediaLogger]) -> None:
    """Says how loggers of a class, and of those derived from it, take media.

    Args:
        kind: a class of loggers, such as one of Lightning's.
        adapter: makes the adapter of a logger.
    """
    _ADAPTERS[kind] = adapter


def adapter_of(logger: Logger) -> MediaLogger | None:
    """Returns what takes a logger's media: itself, or the adapter of the nearest registered class; else None."""
    if isinstance(logger, MediaLogger):
        return logger
    known = (_ADAPTERS[kind] for kind in type(logger).__mro__ if kind in _ADAPTERS)
    make = next(known, None)
    return None if make is None else make(logger)


def log_media(trainer: Trainer, media: Mapping[str, Medium], step: int) -> None:
    """Logs media to every logger of a run that takes them; called on rank 0 only."""
    for adapter in filter(None, map(adapter_of, trainer.loggers)):
        adapter.log_media(media, step)
