"""The engine that ``rollout=auto`` takes."""

import logging
import re

import pytest

from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.auto import auto_engine
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.vllm import versions
from ngrpo.rollout.vllm.engine import VllmEngine


@pytest.mark.parametrize(
    ("installed", "kind", "said"),
    [
        (versions.TESTED[0], VllmEngine, "takes vLLM"),
        ("0.99.1", TorchEngine, "takes the torch engine: .*0.99.1 is installed"),
        (None, TorchEngine, "takes the torch engine: .*none is installed"),
    ],
)
def test_auto_takes_vllm_where_a_tested_one_is_installed_and_says_so(monkeypatch, caplog, installed, kind, said):
    monkeypatch.setattr(versions, "installed_version", lambda: installed)
    with caplog.at_level(logging.INFO, logger="ngrpo.rollout.auto"):
        engine = auto_engine(ModelSource(), NeighborMixing(), 16, 16, max_batch_size=32)
    assert type(engine) is kind
    (record,) = caplog.records
    assert re.search(said, record.getMessage())
