"""Media in TensorBoard's event files."""

from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import numpy as np
from lightning.pytorch.loggers import TensorBoardLogger

from ngrpo.loggers.media import Histogram, Image, Medium, Table, Text


class TensorBoardMedia:
    """Takes the media of any of Lightning's TensorBoard loggers; pages it has no place for."""

    def __init__(self, logger: TensorBoardLogger) -> None:
        self.logger = logger

    def log_media(self, media: Mapping[str, Medium], step: int) -> None:
        """Writes media by tag."""
        for tag, medium in media.items():
            write(medium, self.logger.experiment, tag, step)


@singledispatch
def write(medium: Any, experiment: Any, tag: str, step: int) -> None:
    """Writes a medium; what TensorBoard cannot show is left out."""


@write.register
def _(medium: Histogram, experiment: Any, tag: str, step: int) -> None:
    experiment.add_histogram_raw(
        tag,
        min=medium.edges[0],
        max=medium.edges[-1],
        num=sum(medium.counts),
        sum=medium.total,
        sum_squares=medium.squares,
        bucket_limits=list(medium.edges[1:]),
        bucket_counts=list(medium.counts),
        global_step=step,
    )


@write.register
def _(medium: Image, experiment: Any, tag: str, step: int) -> None:
    pixels = np.asarray(medium.opened().convert("RGB"))
    experiment.add_image(tag, pixels, step, dataformats="HWC")


@write.register(Table)
@write.register(Text)
def _(medium: Table | Text, experiment: Any, tag: str, step: int) -> None:
    experiment.add_text(tag, medium.markdown, step)
