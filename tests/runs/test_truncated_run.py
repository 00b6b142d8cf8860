"""Runs of the demo with truncated sampling: the replay is that of the recorded sets in every iteration."""

from pathlib import Path

import pytest
from test_training import events, run

SMALL = (
    "trainer.iterations=2", "callbacks.evaluation=null", "callbacks.export=null", "reward.workers=1",
    "rollout.max_new_tokens=24",
)  # fmt: skip


def logged(folder: Path, tag: str) -> list[float]:
    return [scalar.value for scalar in events(folder).Scalars(tag)]


@pytest.mark.parametrize(
    ("chosen", "most"),
    [
        (("exploration=min_p", "algo=grpo", "exploration.p_min=0.1"), 128),
        (("exploration=token", "algo=gspo", "exploration.top_p=0.95"), 128),
        (("exploration=token", "algo=grpo", "exploration.top_k=20", "exploration.largest_support=20"), 20),
        (("exploration=min_p", "algo=forking", "rollout.temperature=2", "exploration.largest_support=5"), 5),
        (("exploration=min_p", "algo=grpo", "rollout/scheduler=at_share", "exploration.p_min=0.01"), 128),
        (("exploration=min_p", "algo=grpo", "rollout/scheduler=latr", "rollout.scheduler.gap=0.6"), 128),
    ],
    ids=str,
)
def test_replay_is_exact_and_the_first_ratio_is_one(chosen: tuple[str, ...], most: int, tmp_path: Path) -> None:
    folder = run(tmp_path / "run", *chosen, *SMALL, "algo.optimizer_steps=1", "trainer.optimizer.lr=1e-3")
    assert max(logged(folder, "rollout/mismatch_max")) < 1e-4
    assert logged(folder, "policy/ratio") == [1.0, 1.0]
    assert len(logged(folder, "policy/kl")) == 2
    sizes, largest = logged(folder, "exploration/support_mean"), logged(folder, "exploration/support_max")
    assert all(1 <= mean <= extreme <= most for mean, extreme in zip(sizes, largest, strict=True))


def test_an_exact_run_is_exact(tmp_path: Path) -> None:
    chosen = ("exploration=token", "algo=grpo", "exploration.top_p=0.9", "rollout.exact=true")
    folder = run(tmp_path / "run", *chosen, *SMALL, "algo.optimizer_steps=2")
    assert logged(folder, "rollout/mismatch_max") == [0.0, 0.0]
