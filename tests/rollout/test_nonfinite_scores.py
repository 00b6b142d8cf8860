"""Responses whose log-probs are not finite are told."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from made_rollouts import rollout

from ngrpo.rollout.nonfinite_scores import warn_of_nonfinite


@pytest.mark.parametrize(
    ("dtype", "remedy"), [(torch.float16, "rollout.engine.dtype=float16; set it to bfloat16"), (torch.float32, "model")]
)
def test_they_are_counted(dtype: torch.dtype, remedy: str, caplog: pytest.LogCaptureFixture):
    sound = rollout([1, 2], [3, 4])
    broken = [replace(sound, log_probs=torch.full_like(sound.log_probs, bad)) for bad in (torch.nan, -torch.inf)]
    engine: Any = SimpleNamespace(dtype=dtype)
    assert not warn_of_nonfinite([sound, sound], engine)
    assert caplog.records == []
    assert warn_of_nonfinite([sound, *broken], engine)
    (record,) = caplog.records
    assert record.getMessage().startswith("2 of 3 responses have log-probs that are not finite")
    assert remedy in record.getMessage()
