"""The level of vLLM's own log: warnings, unless the user has said another."""

import os

import pytest

from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.vllm import versions
from ngrpo.rollout.vllm.engine import VllmEngine


@pytest.mark.parametrize(("said", "level"), [(None, "WARNING"), ("DEBUG", "DEBUG")])
def test_log_level(monkeypatch, said, level):
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", said or "")
    if said is None:
        monkeypatch.delenv("VLLM_LOGGING_LEVEL")
    monkeypatch.setattr(versions, "installed_version", lambda: versions.TESTED[0])
    VllmEngine(ModelSource(), TokenSampling(), 16, 16)
    assert os.environ["VLLM_LOGGING_LEVEL"] == level
