"""Everything that must be refused before a model is loaded, each in the exact sentence of ``sentences.txt``.

A block of that file is a line of overrides and an indented line with the sentence, in which ``(...)`` stands for what
another library says. Overrides after ``evaluate:`` are for scripts/evaluate.py.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import bad_files
import pytest
from forked import Done, server
from hydra import compose, initialize_config_dir
from places import ROOT

from ngrpo.config.schema import register
from ngrpo.entrypoints.error_handling import sentence
from ngrpo.entrypoints.evaluate import evaluate
from ngrpo.entrypoints.train import train
from ngrpo.modeling.loading import ModelSource
from ngrpo.utils.lock import lock

LINES = Path(__file__).with_name("sentences.txt").read_text().splitlines()
TABLE = [(above, line.strip()) for above, line in zip(LINES, LINES[1:], strict=False) if line.startswith(" ")]
QUICK = ["data.eval_problems=2", "trainer=cpu", "trainer.threads=1"]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, tiny_model_path: Path) -> Iterator[Path]:
    """A folder with everything bad, as the current one, so that sentences do not depend on its name."""
    folder, before = tmp_path_factory.mktemp("bad"), Path.cwd()
    os.chdir(folder)
    bad_files.write_data()
    bad_files.write_models(tiny_model_path)
    bad_files.write_checkpoints()
    with lock(Path("taken")):
        yield folder
    os.chdir(before)


@pytest.fixture
def nothing_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*arguments: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(ModelSource, "load", load)
    # Several processes must be refused by arithmetic, not by starting them.
    monkeypatch.setattr("ngrpo.entrypoints.train.make_trainer", load)
    monkeypatch.setattr("ngrpo.rollout.vllm.versions.installed_version", lambda: None)


def refusal(line: str) -> str | None:
    """What the user is told: composed as Hydra does it, then run as the scripts do."""
    kind, _, rest = line.rpartition("evaluate: ")
    overrides = rest.split()
    run = next((word.partition("=")[2] for word in overrides if word.startswith("hydra.run.dir=")), "run")
    register()
    try:
        with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
            if "evaluate: " in line:
                evaluate(compose("evaluate", overrides=overrides), Path("out"))
            else:
                train(compose("train", overrides=[*QUICK, *overrides]), Path(run), {"algo": "grpo"}, Path("outputs"))
    except Exception as error:
        return sentence(error)
    raise AssertionError("nothing was refused")


def test_the_table_is_long_enough_and_has_no_case_twice() -> None:
    assert len(TABLE) >= 140
    assert len({overrides for overrides, _ in TABLE}) == len(TABLE)


@pytest.mark.parametrize(("overrides", "expected"), TABLE, ids=[overrides[:60] for overrides, _ in TABLE])
def test_refused(overrides: str, expected: str, here: Path, nothing_loads: None) -> None:
    said = refusal(overrides)
    assert said is not None
    assert said.endswith(".")
    assert "\n" not in said
    assert re.fullmatch(re.escape(expected).replace(r"\(\.\.\.\)", r"\(.+\)"), said), said


def run_script(script: str, *overrides: str, **environment: str) -> Done:
    return server().run([script, *overrides], ROOT, environment, limit_s=60, errors_apart=True)


@pytest.mark.parametrize(
    ("script", "overrides", "expected"),
    [
        (
            "train.py",
            "trainer.iteratons=3",
            "error: trainer.iteratons is no setting; the nearest is trainer.iterations.\n",
        ),
        ("train.py", "rollout.group_size=0", "error: rollout.group_size=0 makes no rollout; choose 1 or more.\n"),
        ("evaluate.py", "n=0", "error: evaluator.samples=0 evaluates nothing; choose 1 or more.\n"),
    ],
)
def test_the_scripts_say_so_and_no_more(script: str, overrides: str, expected: str, tmp_path: Path) -> None:
    done = run_script(script, overrides, f"hydra.run.dir={tmp_path}")
    assert (done.status, done.errors) == (1, expected)


def test_hydras_switch_shows_where_an_error_comes_from(tmp_path: Path) -> None:
    done = run_script("train.py", "rollout.group_size=0", f"hydra.run.dir={tmp_path}", HYDRA_FULL_ERROR="1")
    assert done.status == 1
    assert "Traceback" in done.errors
    assert "rollout.group_size=0 makes no rollout" in done.errors


@pytest.mark.parametrize(
    "error",
    [
        "[../gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:7040",
        "NCCL error: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
        "prematurely.\nLast error:\nsocketProgress: Connection closed",
        "NCCL communicator was aborted on rank 1.  Original reason for failure was: watchdog",
    ],
)
def test_the_end_of_another_process_is_no_fault_of_this_one(error: str) -> None:
    expected = "the connection to another process of this run broke; that process has said why."
    assert sentence(RuntimeError(error)) == expected
