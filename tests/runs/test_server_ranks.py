"""Several ranks, with evaluation, against rollout servers: the run of one process with an engine of its own."""

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from forked import succeed
from running_server import running_server
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ngrpo.remote.explorer import RemoteExplorer

SHORT = [
    "exploration=neighbor", "algo=gspo", "debug=fast", "trainer.accelerator=cpu", "reward.workers=1",
    "algo.optimizer_steps=2", "callbacks.export=null", "callbacks.checkpoint=null", "trainer.iterations=2",
    "callbacks.evaluation.every=1",
]  # fmt: skip
GROUPS = ("train/", "reward/", "exploration/", "eval/", "policy/")


def run(folder: Path, ranks: int, *words: str) -> Path:
    devices = f"trainer.devices={max(1, ranks)}"
    succeed("train.py", *SHORT, devices, f"hydra.run.dir={folder}", *words, ranks=ranks)
    return folder


def logged(folder: Path) -> dict[str, list[float]]:
    """What was logged, times left out."""
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    found = {tag: [one.value for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    return {tag: values for tag, values in found.items() if tag.startswith(GROUPS) and "mismatch" not in tag}


def evaluated(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "summary.json").read_text())["eval"]
    return told


@pytest.mark.slow
def test_two_ranks_and_two_servers_are_one_process_with_its_own_engine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The ranks send the same weights at the same time; one of three addresses is nobody's."""
    caplog.set_level(logging.INFO, "ngrpo.serving.served_model")
    here = run(tmp_path / "here", 0, "rollout=torch")
    with running_server("exploration=neighbor") as one, running_server("exploration=neighbor") as other:
        urls = f"rollout.engine.url=[{one.url},{other.url},http://127.0.0.1:9]"
        there = run(tmp_path / "there", 2, "rollout=server", urls, "rollout.engine.retries=3")
        served = RemoteExplorer([one.url, other.url]).weights()
    taken = Counter(record.getMessage() for record in caplog.records if "are served" in record.message)
    assert set(taken.values()) == {2}  # by each server once, though both ranks send them
    assert len(taken) == 3
    assert served[one.url]["version"] == served[other.url]["version"]
    assert served[one.url]["step"] == served[other.url]["step"]
    own, theirs = evaluated(here), evaluated(there)
    assert theirs["before"] == own["before"]
    assert theirs["after"] == pytest.approx(own["after"], rel=1e-3)  # two ranks add gradients in another order
    expected = logged(here)
    assert any(tag.startswith("eval/") for tag in expected)
    assert logged(there).keys() == expected.keys()
    for tag, values in expected.items():
        assert logged(there)[tag] == pytest.approx(values, rel=1e-3, abs=1e-4), tag
    said = (there / "train.log").read_text()
    assert "http://127.0.0.1:9 does not answer" in said


@pytest.mark.slow
def test_evaluation_may_ask_a_server(tmp_path: Path) -> None:
    told = []
    with running_server() as server:
        for number, words in enumerate((["rollout=torch"], ["rollout=server", f"rollout.engine.url={server.url}"])):
            folder = tmp_path / str(number)
            succeed("evaluate.py", "accelerator=cpu", "n=2", *words, f"out={folder}", "benchmark=demo")
            told.append(json.loads((folder / "evaluation.json").read_text())["benchmarks"])
    assert told[0] == told[1]
