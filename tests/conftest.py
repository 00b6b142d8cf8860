"""A tiny random model and a few rollouts, so that the whole loop runs in seconds."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import forked
import pytest
import torch
from headless_browser import launched_browser
from places import ROOT
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.random import request_key
from ngrpo.exploration.runtime.bound import BoundExploration, bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Request, Sampling

torch.set_num_threads(1)
with suppress(ImportError):  # the environments of plugins do without
    from hypothesis import HealthCheck, settings

    settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("shared machine")

WORDS = [chr(c) for c in range(ord("a"), ord("z") + 1)] + [str(d) for d in range(10)] + ["boxed", "{", "}", "\\"]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|> {{ m['content'] }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<think> {% endif %}"
)


LONG = ("runs", "docs", "study", "report/test_page_in_browser.py", "scripts")
"""Folders and files of tests/ whose tests take seconds each."""


def pytest_configure(config: pytest.Config) -> None:
    """Lets pytest-xdist hand out files in the order below; by itself it begins with those of most tests."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts what takes long first, so that no process works alone at the end; skips what needs a GPU without one."""
    long = [ROOT / "tests" / name for name in LONG]
    items.sort(key=lambda item: not any(item.path.is_relative_to(place) for place in long))
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))


@pytest.fixture(scope="session")
def tiny_model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Qwen2 with grouped heads and a word tokenizer; 64 rows, the last of them padding."""
    path = tmp_path_factory.mktemp("tiny")
    special = ["<|pad|>", "<|unk|>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {word: i for i, word in enumerate([*special, "<think>", "</think>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<|unk|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        unk_token="<|unk|>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=CHAT_TEMPLATE,
    )
    fast.add_tokens(["<think>", "</think>"])
    fast.save_pretrained(path)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        eos_token_id=3,
        pad_token_id=0,
        initializer_range=0.3,
    )
    Qwen2ForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def tiny_source(tiny_model_path: Path) -> ModelSource:
    return ModelSource(path=str(tiny_model_path))


@pytest.fixture(scope="session")
def tiny_vocabulary(tiny_source: ModelSource) -> Vocabulary:
    return Vocabulary.of(tiny_source.tokenizer())


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keeps neighbour tables out of the user's cache."""
    monkeypatch.setenv("NGRPO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session", autouse=True)
def _private_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["NGRPO_CACHE"] = str(tmp_path_factory.mktemp("ngrpo-cache"))


@pytest.fixture
def make_engine(tiny_source: ModelSource) -> Callable[..., TorchEngine]:
    def make(max_batch_size: int = 64, source: ModelSource = tiny_source, compile: bool = False) -> TorchEngine:
        engine = TorchEngine(source, max_batch_size, compile)
        engine.start(torch.device("cpu"))
        return engine

    return make


@pytest.fixture
def bound(tiny_vocabulary: Vocabulary) -> Callable[[TorchEngine, Exploration], BoundExploration]:
    return lambda engine, strategy: bind(strategy, engine.embedding(), tiny_vocabulary)


@pytest.fixture(scope="session")
def requests() -> list[Request]:
    """24 requests: 6 prompts of different lengths, 4 samples each."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for prompt in range(6):
        length = int(torch.randint(3, 12, (1,), generator=generator))
        ids = tuple(torch.randint(6, 46, (length,), generator=generator).tolist())
        made += [Request(ids, request_key(7, 0, prompt, sample)) for sample in range(4)]
    return made


@pytest.fixture(scope="session")
def sampling() -> Sampling:
    return Sampling(temperature=0.8, max_new_tokens=24, stop_ids=(3,))


@pytest.fixture(scope="session", autouse=True)
def _end_of_scripts() -> Iterator[None]:
    yield
    if forked.server.cache_info().currsize:
        forked.server().close()


@pytest.fixture(scope="session")
def scripts() -> forked.Scripts:
    """Runs the scripts as forks of one process."""
    return forked.server()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Closed at the module's end: while playwright's is open, an event loop runs in this thread, and no other can."""
    with launched_browser() as made:
        yield made
