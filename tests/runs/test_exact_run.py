"""A whole run with ``rollout.exact``: no difference in any iteration, and an end where there is one."""

from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from places import ROOT
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ngrpo.config.permissions import typed
from ngrpo.config.schema import register
from ngrpo.entrypoints.train import train
from ngrpo.errors import RunError
from ngrpo.rollout.torch_engine import engine

TAGS = ("rollout/mismatch_mean", "rollout/mismatch_max")
QUICK = ("debug=fast", "trainer=cpu", "callbacks.evaluation=null", "reward.workers=1", "rollout.max_new_tokens=24")


def run(folder: Path, *overrides: str) -> None:
    register()
    words = [*QUICK, "exploration=hrpo", "algo=grpo", "trainer.iterations=2", "rollout.exact=true", *overrides]
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        config = compose("train", overrides=words)
    config.allow_targets = typed(words)
    train(config, folder, {"algo": "grpo"}, folder.parent)


@pytest.mark.parametrize(
    "numbers", [(), ("trainer.precision=16-mixed",), ("trainer.precision=bf16-mixed", "rollout.engine.dtype=bfloat16")]
)
def test_engine_and_trainer_are_equal_in_every_iteration(tmp_path: Path, numbers: tuple[str, ...]) -> None:
    run(tmp_path, "algo.optimizer_steps=2", "model.checkpointing=full", "trainer.microbatch_tokens=300", *numbers)
    (events,) = tmp_path.rglob("events.out.tfevents*")
    logged = EventAccumulator(str(events))
    logged.Reload()
    for tag in TAGS:
        assert [scalar.value for scalar in logged.Scalars(tag)] == [0.0, 0.0]


def test_the_smallest_difference_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = engine.exact_token_scores

    def moved(logits: torch.Tensor, tokens: torch.Tensor, temperature: float) -> tuple[torch.Tensor, ...]:
        log_probs, *others = exact(logits, tokens, temperature)
        return torch.nextafter(log_probs, torch.zeros(())), *others

    monkeypatch.setattr(engine, "exact_token_scores", moved)
    with pytest.raises(RunError, match=r"iteration 1: .*rollout\.exact=true promises"):
        run(tmp_path)
