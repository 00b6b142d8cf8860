"""What a model is given when vLLM loads it, in the user's own format."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from vllm_checks import start_engine

from ngrpo.errors import RunError
from ngrpo.modeling.loading import ModelSource

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm


class Head(nn.Module):
    def compute_logits(self, hidden_states: Tensor, scale: float = 1.0) -> Tensor:
        return hidden_states * scale


def test_what_enters_the_head_is_seen_once():
    from ngrpo.rollout.vllm.attachment import HeadInput

    model, other = Head(), Head()
    seen = HeadInput(model)
    hidden = torch.ones(2, 3)
    assert torch.equal(model.compute_logits(hidden, scale=2.0), 2 * hidden)
    assert seen.take() is hidden
    assert seen.take() is None
    other.compute_logits(hidden)
    assert seen.take() is None


def test_the_users_load_format_is_honoured(demo: ModelSource):
    """Random weights do not come from the model's folder; those that are sent replace them."""
    engine = start_engine(demo, load_format="dummy")
    loaded = demo.load()
    table = loaded.get_input_embeddings().weight.detach()
    assert not torch.equal(engine.embedding()[: len(table)], table)
    engine._transfer.send(loaded.named_parameters(), engine.dtype)
    assert torch.equal(engine.embedding()[: len(table)], table)


def test_a_model_that_cannot_mix_is_refused_in_a_sentence(demo: ModelSource, monkeypatch: pytest.MonkeyPatch):
    from ngrpo.rollout.vllm import attachment

    def quantised(model: nn.Module) -> nn.Module:
        raise attachment.UnmixableModelError("its input embedding is quantised")

    monkeypatch.setattr(attachment, "input_embedding", quantised)
    with pytest.raises(RunError) as refused:
        start_engine(demo)
    assert str(refused.value) == (
        f"rollout=vllm cannot serve model.path={demo.path}: its input embedding is quantised; set rollout=torch."
    )


def test_models_with_a_state_of_their_own_are_refused():
    from ngrpo.rollout.vllm.attachment import attach, attachment_of
    from ngrpo.rollout.vllm.embedding import UnmixableModelError
    from ngrpo.rollout.vllm.settings import MixingSettings

    plain = {"is_hybrid": False, "is_attention_free": False, "is_encoder_decoder": False}
    usual = {"pipeline_parallel_size": 1, "use_ubatching": False, "enable_batch_sharded_sampling": False}
    usual["prefill_context_parallel_size"] = 1
    parallel, no_drafts = SimpleNamespace(**usual), {"speculative_config": None}
    for name, reason in (
        ("is_hybrid", "state of its own"),
        ("is_attention_free", "state of its own"),
        ("is_encoder_decoder", "an encoder"),
    ):
        model = Head()
        flags = SimpleNamespace(**plain | {name: True})
        config = SimpleNamespace(model_config=flags, parallel_config=parallel, **no_drafts)
        attach(model, config, MixingSettings(1, False))
        with pytest.raises(UnmixableModelError, match=reason):
            attachment_of(model)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"speculative_config": object()}, "speculative decoding accepts tokens"),
        ({"pipeline_parallel_size": 2}, "a pipeline's last stage"),
        ({"use_ubatching": True}, "each part of a divided batch"),
        ({"prefill_context_parallel_size": 2}, "a part of a prompt"),
        ({"enable_batch_sharded_sampling": True}, "batch-sharded sampling leaves no worker"),
    ],
)
def test_configurations_that_lose_mixtures_are_refused(changed: dict[str, object], reason: str):
    """Such as ``vllm serve`` may have, to which no options of ours were given."""
    from vllm.config import ParallelConfig

    from ngrpo.rollout.vllm.attachment import attach, attachment_of
    from ngrpo.rollout.vllm.embedding import UnmixableModelError
    from ngrpo.rollout.vllm.settings import MixingSettings

    model = Head()
    usual = ParallelConfig()
    names = ("pipeline_parallel_size", "use_ubatching", "enable_batch_sharded_sampling")
    names += ("prefill_context_parallel_size",)
    parallel = {name: changed.get(name, getattr(usual, name)) for name in names}
    drafts = changed.get("speculative_config")
    attach(
        model,
        SimpleNamespace(parallel_config=SimpleNamespace(**parallel), speculative_config=drafts),
        MixingSettings(1, False),
    )
    with pytest.raises(UnmixableModelError, match=reason):
        attachment_of(model)


def test_no_constant_of_a_module_is_made_while_a_model_is_loaded():
    # On a GPU it would lie in memory that a sleep takes away, and keep the next engine of the process from starting.
    script = Path(__file__).with_name("module_tensors.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert "new modules: True; with tensors: []" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
