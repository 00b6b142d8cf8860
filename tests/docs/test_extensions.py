"""Every extension of docs/extending.md trains by its command, and its curve is in the log."""

import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from places import ROOT
from prose import PAGES, commands, execute
from stand_in import stand_in_judge
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

PAGE = "docs/extending.md"
QUICK = ["debug=fast", "callbacks.evaluation=null", "callbacks.export=null"]
COMMANDS = [command for command in commands(PAGE) if "scripts/train.py" in command]

Curve = Callable[[list[float]], bool]
CURVES: dict[str, tuple[str, Curve]] = {
    "blend_top_two.BlendTopTwo": ("exploration/gated_fraction", lambda all_: all(0 < one < 1 for one in all_)),
    "resting_blend.RestingBlend": ("exploration/rest", lambda rest: rest == [0, 0, 0, 1]),
    "fading_blend.FadingBlend": ("exploration/rate", lambda rate: rate == pytest.approx([0.5, 0.475, 0.45, 0.425])),
    "learned_blend.LearnedBlend": (
        "exploration/learned/share", lambda share: share[0] == -1.0 and len(set(share)) == len(share)
    ),
    "smooth_clip.smooth_clip": ("policy/clip_fraction", lambda faded: all(0 <= one < 1 for one in faded)),
    "median_advantage.median_centred": ("policy/loss", lambda loss: all(map(math.isfinite, loss))),
    "first_answer_bonus.FirstAnswers": ("policy/loss", lambda loss: all(map(math.isfinite, loss))),
    "late_forks.LateForks": ("rollout/branch_depth", lambda depth: all(one >= 0.75 for one in depth)),
    "harder_pays_more.reward": ("train/reward", lambda reward: all(0 <= one <= 0.6 for one in reward)),
    "counting_reward.Novelty": ("reward/custom", lambda novelty: novelty[0] > novelty[-1] > 0),
    "reward=reward_model": ("train/reward", lambda reward: all(0 < one < 1 for one in reward)),
    "reward=llm_judge": ("train/reward", lambda reward: all(0.2 <= one <= 1 for one in reward)),
    "dice_problems.Dice": ("train/reward", lambda reward: len(reward) == 4),
    "smoothed_reward.SmoothedReward": ("train/reward_smoothed", lambda smooth: all(0 <= one <= 1 for one in smooth)),
}  # fmt: skip
"""A curve that each of the page's trainings has, and what is true of its four values."""


def curve(run: Path, tag: str) -> list[float]:
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    return [event.value for event in events.Scalars(tag)]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reward") / "classifier"
    execute(["python", "examples/make_reward_model.py", str(folder)])
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: next((k for k in CURVES if k in command), command))
def test_it_trains_and_has_its_curve(command: str, classifier: Path, tmp_path: Path) -> None:
    (name,) = [name for name in CURVES if name in command]
    words = shlex.split(command.replace("outputs/classifier", str(classifier)))
    path = words.pop(0).removeprefix("PYTHONPATH=") if words[0].startswith("PYTHONPATH=") else ""
    run = tmp_path / "run"
    given = [*words, *QUICK, "trainer.iterations=4", f"hydra.run.dir={run}"]
    if name == "reward=llm_judge":
        with stand_in_judge() as port:
            execute([word.replace("8123", port) for word in given], PYTHONPATH=path, no_proxy="127.0.0.1")
    else:
        execute(given, PYTHONPATH=path)
    tag, holds = CURVES[name]
    values = curve(run, tag)
    assert len(values) == 4
    assert holds(values), values


def test_the_page_has_every_extension() -> None:
    assert {name for name in CURVES for command in COMMANDS if name in command} == set(CURVES)


def test_examples_are_short_and_on_a_page() -> None:
    text = "".join(PAGES.values())
    for file in (ROOT / "examples").glob("*.py"):
        assert len(file.read_text().splitlines()) <= 60, file
        assert f"examples/{file.name}" in text, file


def test_files_named_on_the_page_are_there() -> None:
    for name in re.findall(r"`((?:examples|ngrpo|conf)/[\w/.]+)`", PAGES[PAGE]):
        assert (ROOT / name).exists(), name


KILLED = [
    *("exploration=custom", "exploration._target_=fading_blend.FadingBlend", "exploration.over=5"),
    *("+callbacks.smoothed._target_=smoothed_reward.SmoothedReward", "callbacks.checkpoint.every=1"),
    *("reward_terms=[custom]", "reward_terms.custom.term._target_=counting_reward.Novelty"),
]


@pytest.mark.faults
def test_rates_and_states_go_on_after_a_kill(tmp_path: Path) -> None:
    broken, resumed = tmp_path / "broken", tmp_path / "resumed"
    given = [*QUICK, *(word.replace("exploration.over", "+exploration.over") for word in KILLED)]
    given += ["trainer.iterations=6"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "scripts/train.py", *given, f"hydra.run.dir={broken}"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    deadline = time.monotonic() + 240
    while not (broken / "checkpoints" / "iteration-3").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    execute(
        ["python", "scripts/train.py", *given, f"hydra.run.dir={resumed}", f"ckpt={broken}"],
        PYTHONPATH=str(ROOT / "examples"),
    )
    after = curve(resumed, "exploration/rate")
    done = 6 - len(after)
    assert done >= 3
    assert after == pytest.approx([0.5 * max(1 - i / 5, 0) for i in range(done, 6)])
    before, after_all = state(broken, done), state(resumed, 6)
    value = before["SmoothedReward"]["value"]
    for reward, smoothed in zip(curve(resumed, "train/reward"), curve(resumed, "train/reward_smoothed"), strict=True):
        value = 0.9 * value + 0.1 * reward
        assert smoothed == pytest.approx(value, abs=1e-5)
    assert after_all["SmoothedReward"]["value"] == pytest.approx(value, abs=1e-5)
    for kept, iterations in ((before, done), (after_all, 6)):
        counts = kept["RolloutCallback"]["reward_terms"]["custom"]["counts"]
        assert sum(counts.values()) == 16 * iterations


def state(run: Path, iteration: int) -> dict[str, Any]:
    """What the callbacks have in a checkpoint."""
    file = run / "checkpoints" / f"iteration-{iteration}" / "state.ckpt"
    return {name.split("{")[0]: one for name, one in torch.load(file, weights_only=True)["callbacks"].items()}
