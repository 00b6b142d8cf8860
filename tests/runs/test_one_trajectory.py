"""Settings that must not matter to what is trained: to the bit where the sums are the same, else up to rounding."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from places import ROOT
from safetensors.torch import load_file
from test_two_processes import train as train_in_processes

from ngrpo.config.schema import register
from ngrpo.entrypoints.train import train
from ngrpo.modeling.loading import ModelSource

CONF = ROOT / "conf"
BASE = (
    "debug=fast", "trainer=cpu", "exploration=neighbor", "algo=gspo", "algo.optimizer_steps=2", "trainer.iterations=3",
    "reward.workers=1",
)  # fmt: skip
SAME_BITS = {
    "report off": ("callbacks.rollout_report=null", "callbacks.run_record=null"),
    "logger csv": ("logger=csv", "callbacks.rollout_report=null"),
    "validation off": ("callbacks.evaluation=null",),
    "validation less often": ("callbacks.evaluation.evaluator.samples=2", "callbacks.evaluation.every=2"),
    "checkpoints off": ("callbacks.checkpoint=null",),
    "monitors off": ("callbacks.exploration_monitor=null", "callbacks.rollout_metrics=null", "callbacks.memory=null"),
    "warnings and random states off": ("callbacks.collapse_warnings=null", "callbacks.random_state=null"),
}
SAME_UP_TO_ROUNDING = {
    "microbatches of one sequence": ("trainer.microbatch_tokens=1",),
    "microbatches of a few": ("trainer.microbatch_tokens=150",),
    "logits in pieces": ("trainer.head_rows=7",),
    "activations made again": ("model.checkpointing=full",),
}
TOLERANCE = 0.02
"""Of the distance that training went: AdamW makes as much of a gradient that is rounding alone as of any other."""

Weights = dict[str, torch.Tensor]


def run(folder: Path, *overrides: str) -> Weights:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config = compose("train", overrides=[*BASE, *overrides])
    train(config, folder, {"algo": "gspo"}, folder.parent)
    return load_file(folder / "model" / "model.safetensors")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Weights]:
    return cache(lambda: run(tmp_path_factory.mktemp("base") / "run"))


def length(one: Weights, two: Weights) -> float:
    return sum(float((one[name] - two[name]).double().square().sum()) for name in one) ** 0.5


def apart(one: Weights, two: Weights) -> float:
    """The distance of two trained models, relative to how far the first one has come."""
    start = ModelSource().load().state_dict()
    assert one.keys() == two.keys() <= start.keys()
    return length(one, two) / length(one, start)


@pytest.mark.parametrize("overrides", SAME_BITS.values(), ids=SAME_BITS)
def test_same_bits(base: Callable[[], Weights], overrides: tuple[str, ...], tmp_path: Path) -> None:
    assert apart(base(), run(tmp_path / "run", *overrides)) == 0.0


@pytest.mark.parametrize("overrides", SAME_UP_TO_ROUNDING.values(), ids=SAME_UP_TO_ROUNDING)
def test_same_up_to_rounding(base: Callable[[], Weights], overrides: tuple[str, ...], tmp_path: Path) -> None:
    assert apart(base(), run(tmp_path / "run", *overrides)) < TOLERANCE


def test_two_processes(base: Callable[[], Weights], tmp_path: Path) -> None:
    train_in_processes(tmp_path, 2, "algo=gspo", "trainer.iterations=3", "callbacks.evaluation=null")
    assert apart(base(), load_file(tmp_path / "model" / "model.safetensors")) < TOLERANCE


def test_a_setting_that_matters_is_seen(base: Callable[[], Weights], tmp_path: Path) -> None:
    for overrides in (("seed=1",), ("algo.optimizer_steps=4",)):
        assert apart(base(), run(tmp_path / overrides[0], *overrides)) > 10 * TOLERANCE


def test_two_processes_in_float16(tmp_path: Path) -> None:
    one = run(tmp_path / "one", "trainer.precision=16-mixed")
    words = ("algo=gspo", "trainer.iterations=3", "callbacks.evaluation=null", "trainer.precision=16-mixed")
    train_in_processes(tmp_path / "two", 2, *words)
    assert apart(one, load_file(tmp_path / "two" / "model" / "model.safetensors")) < TOLERANCE
