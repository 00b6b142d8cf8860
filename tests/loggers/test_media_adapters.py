"""Media, and who takes them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ngrpo.loggers import media_adapters
from ngrpo.loggers.journal import Journal, Row
from ngrpo.loggers.media import Histogram, Image, Page, Table, Text, as_json, from_json
from ngrpo.loggers.media_adapters import adapter_of, register


class Own(CSVLogger):
    """A user's logger."""


class Adapter:
    def __init__(self, logger: Own) -> None:
        self.logger = logger

    def log_media(self, media: dict[str, Any], step: int) -> None:
        pass


def test_a_logger_of_ones_own_is_registered_or_takes_media_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_adapters, "_ADAPTERS", dict(media_adapters._ADAPTERS))
    own = Own(tmp_path)
    assert adapter_of(own) is None
    register(Own, Adapter)
    assert isinstance(adapter_of(own), Adapter)
    assert adapter_of(CSVLogger(tmp_path)) is None
    own.log_media = lambda media, step: None
    assert adapter_of(own) is own


def test_tensorboard_shows_what_it_can(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, "", "")
    values = torch.tensor([0.0, 1.0, 1.0, 3.0])
    table = Table(("q",), (("1",),), "| q |")
    media = {"h": Histogram.of(values), "t": Text("a **b**"), "r": table, "p": Page("x.html")}
    adapter_of(logger).log_media(media, 7)
    logger.finalize("success")
    events = EventAccumulator(str(tmp_path)).Reload()
    (histogram,) = events.Histograms("h")
    assert (histogram.step, histogram.histogram_value.num, histogram.histogram_value.sum) == (7, 4, 5)
    assert {tag.split("/")[0] for tag in events.Tags()["tensors"]} == {"t", "r"}


@pytest.mark.parametrize(
    "medium", [Histogram.of(torch.ones(3)), Image.of(b"png"), Text("x"), Table(["a"], [["b"]], "b"), Page(__file__)]
)
def test_a_stored_medium_is_what_it_was(medium: Any) -> None:
    assert from_json(as_json(medium)) == medium


def test_a_page_that_has_gone_is_not_logged_again(tmp_path: Path) -> None:
    assert from_json(as_json(Page(str(tmp_path / "gone.html")))) is None


def test_a_journal_keeps_its_id_and_what_is_before_the_checkpoint(tmp_path: Path) -> None:
    file, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first = Journal(file, file, 0, "first")
    for step in range(4):
        first.append(Row(step, {"x": float(step)}))
        first.append(Row(step + 1, {"y": 1.0}))
    with file.open("a") as torn:
        torn.write('{"step": 9, "met')
    resumed = Journal(other, file, 2, "other folder")
    assert resumed.name == "first"
    assert (resumed.run, resumed.last, resumed.given(4)) == (first.run, 4, {"y"})
    assert [(row.step, row.metrics) for row in resumed.kept()] == [(0, {"x": 0.0}), (1, {"y": 1.0, "x": 1.0})]
    assert Journal(other, other, 2).kept() == resumed.kept()
    anew = Journal(file, file, 0)
    assert anew.run != first.run
    assert anew.kept() == []
