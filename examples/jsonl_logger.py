"""A logger of one's own: a line of JSON an iteration, and texts and tables in a file beside it."""

import json
from collections.abc import Mapping
from pathlib import Path

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from ngrpo.loggers.media import Medium, Table, Text


class JsonLines(Logger):
    """Writes ``lines.jsonl`` and ``texts.md`` into the run's folder.

    Args:
        save_dir: the run's folder, given by name; so are ``run_name``, ``iterations_done`` and ``resumed_from``.
        digits: decimals of a number.
    """

    def __init__(self, save_dir: str, digits: int = 4) -> None:
        super().__init__()
        self.folder = Path(save_dir)
        self.digits = digits

    @property
    def name(self) -> str:
        """Names the logger."""
        return "lines"

    @property
    def version(self) -> str:
        """Tells no versions apart."""
        return ""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Writes a line."""
        numbers = {tag: round(float(value), self.digits) for tag, value in metrics.items()}
        with (self.folder / "lines.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, **numbers}) + "\n")

    @rank_zero_only
    def log_hyperparams(self, params: Mapping[str, object]) -> None:
        """Writes the settings."""
        (self.folder / "settings.json").write_text(json.dumps(params, default=str))

    @rank_zero_only
    def log_media(self, media: Mapping[str, Medium], step: int) -> None:
        """With this method a logger takes media; what it has no place for it leaves out."""
        with (self.folder / "texts.md").open("a") as file:
            for tag, medium in media.items():
                if isinstance(medium, Table | Text):
                    file.write(f"# {tag}, iteration {step}\n\n{medium.markdown}\n\n")
