"""Peak memory against what the kernel says."""

from pathlib import Path

import pytest
import torch
from fake_run import Module, batch, on_ranks, trainer

from ngrpo.callbacks import memory
from ngrpo.callbacks.memory import PeakMemory, peak_bytes

STATUS = Path("/proc/self/status")


@pytest.mark.skipif(not STATUS.exists(), reason="needs Linux's /proc")
def test_peak_is_the_high_water_mark_of_the_process():
    torch.ones(4 << 20)
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    assert peak_bytes(torch.device("cpu")) == pytest.approx(int(line.split()[1]) * 1024, rel=0.01)


def test_logged_in_gib():
    module = Module()
    PeakMemory().on_train_batch_end(trainer(), module, None, batch(0), 0)
    assert module.logged["memory/peak_gib"] == pytest.approx(peak_bytes(module.device) / 2**30, rel=0.01)


def test_the_largest_process_counts(monkeypatch: pytest.MonkeyPatch):
    def log(trainer, module, rank) -> None:
        monkeypatch.setattr(memory, "peak_bytes", lambda device: (rank + 1) << 30)
        PeakMemory().on_train_batch_end(trainer, module, None, batch(0), 0)

    assert on_ranks(log, 3) == [{"memory/peak_gib": 3.0}] * 3
