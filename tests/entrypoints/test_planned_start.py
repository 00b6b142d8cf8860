"""The planned peak at the start of a training, with a pretended device."""

import logging
import time

import pytest

from ngrpo.config.check import checked
from ngrpo.entrypoints import planned_start
from ngrpo.entrypoints.composition import composed
from ngrpo.entrypoints.engine_choice import choose_for_training
from ngrpo.entrypoints.planned_start import check_memory
from ngrpo.errors import SettingError

GIB = 2**30


@pytest.fixture(autouse=True)
def told(caplog):
    caplog.set_level(logging.DEBUG, logger="ngrpo.entrypoints.planned_start")


def start(monkeypatch, size, *settings) -> str:
    monkeypatch.setattr(planned_start, "device_memory", lambda config: size)
    config = checked(composed("train", settings).config)
    choose_for_training(config, None)  # as a training does before
    return check_memory(config)


def lines(caplog, level):
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_one_line_with_the_planned_peak(monkeypatch, caplog):
    line = start(monkeypatch, 80 * GIB)
    assert not lines(caplog, logging.INFO)
    assert line.startswith("planned peak ")
    assert line.endswith("; the device has 80.0 GiB: fits.")


def test_what_may_fit_is_not_refused(monkeypatch):
    assert start(monkeypatch, GIB // 10).endswith("does not fit.")


def test_what_cannot_fit_is_refused_with_the_most_effective_change(monkeypatch):
    with pytest.raises(SettingError, match="^weights, gradients and moments take .* the device has .*; set ") as e:
        start(monkeypatch, GIB // 100)
    assert "trainer.plan_memory=false" in str(e.value)
    assert "model/lora=adapter" in str(e.value)
    assert "and take more devices" not in str(e.value)


def test_more_devices_where_no_change_is_enough(monkeypatch):
    with pytest.raises(SettingError, match=", and take more devices, or trainer.plan_memory=false"):
        start(monkeypatch, 1000)


@pytest.mark.parametrize(("size", "settings"), [(0, ()), (1000, ("trainer.plan_memory=false",))])
def test_nothing_on_a_cpu_or_where_it_is_off(size, settings, monkeypatch, caplog):
    start(monkeypatch, size, *settings)
    assert not caplog.records


def test_what_cannot_be_planned_goes_on_without_a_line(monkeypatch, caplog):
    def unknown(run):
        raise RuntimeError("a model of its own kind")

    monkeypatch.setattr(planned_start, "quick_plan", unknown)
    start(monkeypatch, 1000)
    assert lines(caplog, logging.INFO) == []
    assert lines(caplog, logging.DEBUG) == ["this run's memory cannot be planned"]


def test_nothing_is_compiled_for_it(monkeypatch):
    monkeypatch.setattr("ngrpo.planning.pass_memory.kept_by_compiled_layer", lambda *_: pytest.fail("compiled"))
    begin = time.perf_counter()
    start(monkeypatch, 80 * GIB, "model.compile=true")
    assert time.perf_counter() - begin < 30  # of which composing takes most
