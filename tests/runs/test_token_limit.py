"""Runs that are limited by generated tokens: where they end, what drives their learning rate, and that they resume."""

import json
import math
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from forked import HELPERS, succeed
from safetensors.torch import load_file

from ngrpo.report.run_store import RunStore
from ngrpo.training.optim.lr_schedule import cosine

COSINE = "trainer.schedule._target_=ngrpo.training.optim.lr_schedule.cosine"
LIMIT = 2000
TOKENS = "rollout/generated_tokens"


def train(folder: Path, *overrides: str, ranks: int = 0) -> Path:
    """Trains until the limit of tokens, which comes long before that of iterations."""
    succeed(
        "train.py", "exploration=neighbor", "debug=fast", "trainer.accelerator=cpu", f"trainer.devices={ranks or 1}",
        "algo=dapo", "selection.max_refills=2", "algo.optimizer_steps=2", "trainer.iterations=50", COSINE,
        f"trainer.max_generated_tokens={LIMIT}", "callbacks.checkpoint.every=1", "callbacks.checkpoint.keep=9",
        "callbacks.evaluation=null", "reward.workers=1", f"hydra.run.dir={folder}", *overrides,
        path=[HELPERS], ranks=ranks,
    )  # fmt: skip
    return folder


def metrics(folder: Path, name: str) -> list[float]:
    return [record.metrics[name] for record in RunStore(folder).iterations()]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("straight"))


def test_the_iteration_that_reaches_the_limit_is_the_last(straight: Path) -> None:
    counts = metrics(straight, TOKENS)
    summary = json.loads((straight / "summary.json").read_text())
    assert summary["iterations"] == len(counts) >= 2
    assert counts[-2] < LIMIT <= counts[-1] == summary["tokens_generated"]
    assert (straight / f"checkpoints/iteration-{len(counts)}").is_dir()
    assert (straight / "model").is_dir()


def test_what_dynamic_sampling_dropped_was_paid_for(straight: Path) -> None:
    generated = metrics(straight, "sampling/generated")
    kept = [mean * 4 * 4 for mean in metrics(straight, "rollout/length_mean")]
    assert max(generated) > 4
    assert metrics(straight, TOKENS)[-1] > sum(kept)
    assert all(count >= paid for count, paid in zip(metrics(straight, TOKENS), accumulate(kept), strict=True))


def test_the_learning_rate_follows_the_tokens_of_the_iterations_before(straight: Path) -> None:
    rates = metrics(straight, "policy/learning_rate")
    shares = [count / LIMIT for count in [0.0, *metrics(straight, TOKENS)[:-1]]]
    # No tokens stand before the first iteration, whose second optimiser step is one of a hundred.
    highest = rates[0] / ((1 + cosine(1, 50 * 2)) / 2)
    expected = [highest * (1 + math.cos(math.pi * share)) / 2 for share in shares]
    assert rates[1:] == pytest.approx(expected[1:], rel=1e-5)
    assert rates[-1] < 0.9 * rates[0]


def test_a_resumed_run_ends_where_the_straight_one_does(straight: Path, tmp_path: Path) -> None:
    again = train(tmp_path, f"ckpt='{straight}/checkpoints/iteration-1'")
    assert metrics(again, TOKENS) == metrics(straight, TOKENS)
    trained, continued = (load_file(folder / "model" / "model.safetensors") for folder in (straight, again))
    assert all(torch.equal(tensor, continued[name]) for name, tensor in trained.items())


def test_a_raised_limit_trains_on_and_a_reached_one_makes_no_iteration(straight: Path, tmp_path: Path) -> None:
    last = f"ckpt='{straight}/checkpoints/iteration-{len(metrics(straight, TOKENS))}'"
    same = train(tmp_path / "same", last)
    assert metrics(same, TOKENS) == metrics(straight, TOKENS)
    assert f"trainer.max_generated_tokens={LIMIT} is reached already" in (same / "train.log").read_text()
    more = train(tmp_path / "more", last, f"trainer.max_generated_tokens={2 * LIMIT}")
    assert metrics(more, TOKENS)[-1] >= 2 * LIMIT


def test_two_processes_count_what_one_counts(straight: Path, tmp_path: Path) -> None:
    first = metrics(straight, TOKENS)[0]
    two = train(tmp_path, f"trainer.max_generated_tokens={int(first)}", ranks=2)
    assert metrics(two, TOKENS) == [first]
