"""A plan knows what trainer and engine compute in."""

import pytest
import torch
from hydra import compose, initialize_config_dir
from places import ROOT

from ngrpo.config.check import checked
from ngrpo.config.schema import register
from ngrpo.entrypoints.planned_run import read_run

CASES = [
    ("torch", "32-true", None, 4),
    ("torch", "bf16-mixed", torch.bfloat16, 4),
    ("torch", "16-mixed", torch.float16, 2),
    ("vllm", "bf16-mixed", torch.bfloat16, 2),
    ("vllm", "16-mixed", torch.float16, 2),
]


@pytest.mark.parametrize(("rollout", "precision", "mixed_in", "itemsize"), CASES)
def test_float16_halves_what_is_served(
    rollout: str, precision: str, mixed_in: torch.dtype | None, itemsize: int
) -> None:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        config = checked(compose("train", overrides=[f"rollout={rollout}", f"trainer.precision={precision}"]))
    run = read_run(config, 80 << 30)
    assert (run.mixed_in, run.computed_in) == (mixed_in, mixed_in or torch.float32)
    numbers = 1_000_000
    weights = run.engine.memory(run.config, numbers, 80 << 30).weights
    assert weights == numbers * itemsize
