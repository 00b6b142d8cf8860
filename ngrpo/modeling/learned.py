"""An exploration strategy's learned parameters as a file beside the model."""

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.loading import ModelSource

FILE = "exploration.safetensors"


def load_learned(source: ModelSource, exploration: Exploration) -> dict[str, Tensor]:
    """Returns what the strategy has learned: from the file beside the model, else its initial values.

    Raises:
        SettingError: the file holds parameters of another strategy.
    """
    initial = exploration.initial_parameters(source.config().hidden_size)
    if not initial:
        return {}
    path = source.file(FILE)
    if path is None:
        return initial
    learned = load_file(path)
    if {n: t.shape for n, t in learned.items()} != {n: t.shape for n, t in initial.items()}:
        raise SettingError(
            f"model.path={source.path} holds an {FILE} with {', '.join(sorted(learned))}, which are not the parameters "
            f"of exploration={type(exploration).__name__}; choose the strategy that it was trained with, or remove it."
        )
    return learned


def save_learned(learned: Mapping[str, Tensor], folder: Path) -> None:
    """Writes the file, if the strategy learns anything."""
    if learned:
        save_file({name: value.contiguous() for name, value in learned.items()}, folder / FILE)
