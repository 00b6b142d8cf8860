"""Word problems and settings for TRL."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def problems() -> Any:
    datasets = pytest.importorskip("datasets")
    from ngrpo.data.word_problems.generator import problem

    rows = [problem(key, "train") for key in range(64)]
    return datasets.Dataset.from_list(
        [{"prompt": [{"role": "user", "content": p.question}], "answer": p.answer} for p in rows]
    )


@pytest.fixture
def settings(tmp_path: Path) -> Any:
    """Makes a GRPOConfig of two updates a batch of 4 prompts x 4 responses."""
    from trl import GRPOConfig

    def made(**changes: Any) -> Any:
        few: dict[str, Any] = {
            "output_dir": str(tmp_path), "use_cpu": True, "bf16": False, "report_to": "none", "logging_steps": 1,
            "save_strategy": "no", "disable_tqdm": True, "seed": 0, "num_generations": 4, "max_completion_length": 48,
            "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "steps_per_generation": 2,
            "beta": 0.01, "learning_rate": 1e-3, "lr_scheduler_type": "constant", "max_steps": 4,
            "gradient_checkpointing": False,
        }  # fmt: skip
        return GRPOConfig(**few | changes)

    return made
