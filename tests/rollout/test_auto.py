"""The engine that ``rollout=auto`` takes without a run's configuration."""

import logging
import re

import pytest
import torch

from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.auto import Surroundings, auto_engine, reason_for_torch
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.vllm import availability, versions
from ngrpo.rollout.vllm.engine import VllmEngine

GPU = Surroundings("gpu", requests=8)


@pytest.fixture(autouse=True)
def gpu_with_vllm(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(versions, "installed_version", lambda: versions.TESTED[0])
    monkeypatch.setattr(availability, "has_native", lambda config: config.architectures == ["Qwen2ForCausalLM"])


@pytest.mark.parametrize(
    ("installed", "kind", "said"),
    [
        (versions.TESTED[0], VllmEngine, "takes vLLM"),
        ("0.99.1", TorchEngine, "takes the torch engine: vLLM 0.99.1 is newer than those .*; rollout=vllm takes it$"),
        ("0.29.0", TorchEngine, "takes the torch engine: .*0.29.0 is installed"),
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


@pytest.mark.parametrize(("given", "slots"), [(None, 128), (7, 7)])
def test_a_cpu_takes_torch_with_its_own_batch_size(given, slots):
    engine = auto_engine(ModelSource(), NeighborMixing(), 16, 16, max_batch_size=given, accelerator="cpu")
    assert isinstance(engine, TorchEngine)
    assert engine.max_batch_size == slots


@pytest.mark.parametrize("compile", [True, False])
def test_a_setting_of_torch_takes_torch(compile):
    engine = auto_engine(ModelSource(), NeighborMixing(), 16, 16, compile=compile)
    assert isinstance(engine, TorchEngine)
    assert engine.compile is compile


def reason(strategy=None, around=GPU, gib=16.0):
    return reason_for_torch(ModelSource(), strategy or NeighborMixing(), 16, 16, around, gib)


def test_nothing_speaks_against_vllm_on_a_gpu():
    assert reason() is None
    assert reason(around=Surroundings("gpu", 8, [TokenSampling(), NeighborMixing()])) is None


def test_the_cpu_speaks_against_it():
    assert reason(around=Surroundings("cpu")) == "the run is on a CPU"


def test_records_that_are_too_large_speak_against_it():
    assert "dense_record_gib=1e-09" in reason(GaussianSoftTokens(), gib=1e-9)


def test_an_evaluation_that_vllm_is_not_started_for_speaks_against_it():
    wide = Surroundings("gpu", 8, [NeighborMixing()])
    assert "an evaluation mixes more" in reason(TokenSampling(), wide)


def test_a_model_without_a_native_implementation_speaks_against_it(monkeypatch):
    monkeypatch.setattr(availability, "has_native", lambda config: False)
    assert reason() == "vLLM has no implementation of its own for model.path=demo"


def test_a_vllm_that_cannot_be_imported_speaks_against_it(monkeypatch):
    def broken(config):
        raise ImportError("libcudart.so.13: cannot open shared object file")

    monkeypatch.setattr(availability, "has_native", broken)
    assert reason() == "vLLM cannot be imported (libcudart.so.13: cannot open shared object file)"


def test_exact_takes_torch():
    engine = auto_engine(ModelSource(), NeighborMixing(), 16, 16, exact=True)
    assert isinstance(engine, TorchEngine)
    assert engine.exact
