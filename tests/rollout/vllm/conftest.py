"""One eager vLLM engine for most tests, the torch engine to hold it to, and settings that vLLM's CPU build needs."""

import os
from collections.abc import Callable

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import pytest
import torch
from vllm_checks import MIXING, start_engine

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.bound import BoundExploration, bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.vllm.engine import VllmEngine


@pytest.fixture(scope="session")
def demo() -> ModelSource:
    return ModelSource()


@pytest.fixture(scope="session")
def engine(demo: ModelSource) -> VllmEngine:
    return start_engine(demo)


@pytest.fixture(scope="session")
def oracle(demo: ModelSource) -> TorchEngine:
    torch_engine = TorchEngine(demo)
    torch_engine.start(torch.device("cpu"))
    return torch_engine


@pytest.fixture(scope="session")
def trainer(demo: ModelSource) -> ScoringModel:
    return ScoringModel(demo.load())


@pytest.fixture(scope="session")
def bound_to_demo(demo: ModelSource, oracle: TorchEngine) -> Callable[[Exploration], BoundExploration]:
    vocabulary = Vocabulary.of(demo.tokenizer())
    return lambda strategy: bind(strategy, oracle.embedding(), vocabulary)


@pytest.fixture(scope="session")
def mixing(bound_to_demo: Callable[[Exploration], BoundExploration]) -> BoundExploration:
    return bound_to_demo(MIXING)
