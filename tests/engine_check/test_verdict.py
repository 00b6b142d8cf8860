"""What a verdict says and remembers."""

import logging
from pathlib import Path

import pytest
import torch

from ngrpo.engine_check.comparison import PLAIN_SCORES, Finding
from ngrpo.engine_check.verdict import Verdict
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.model_check.comparison import Numbers
from ngrpo.model_check.tolerances import Deviation
from ngrpo.modeling.loading import ModelSource


@pytest.mark.parametrize(
    ("dtype", "limit", "remedy"),
    [
        (torch.bfloat16, 0.3, None),
        (torch.bfloat16, 1.2, "choose another model, or set rollout.engine.dtype=float32."),
        (torch.float32, 1.2, "choose another model."),
    ],
)
def test_an_engine_that_could_hide_faults_is_told_and_not_remembered(
    dtype: torch.dtype,
    limit: float,
    remedy: str | None,
    tiny_source: ModelSource,
    cache_dir: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    verdict = Verdict("vLLM 0.32", tiny_source, {}, NeighborMixing())
    found = Finding("rollouts", PLAIN_SCORES, Numbers(dtype), Deviation(0.1, 0.2, limit, 4.0, 96))
    with caplog.at_level(logging.WARNING):
        verdict.give([found], remember=True)
    assert [record.message.endswith(remedy) for record in caplog.records] == ([] if remedy is None else [True])
    assert verdict.known() == (remedy is None)
