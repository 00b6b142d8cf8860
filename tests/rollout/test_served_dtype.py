"""An engine's numbers are the setting's, or those that it takes by itself."""

from dataclasses import replace

import pytest
import torch

from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.model_in_memory import ModelInMemory
from ngrpo.rollout.served_dtype import served_dtype
from ngrpo.rollout.torch_engine.engine import TorchEngine

CPU = torch.device("cpu")


def test_the_setting_decides_and_auto_leaves_it_open():
    assert served_dtype("auto", "bfloat16") == "bfloat16"
    assert served_dtype("float16", "bfloat16") == "float16"
    with pytest.raises(SettingError, match=r"^rollout\.engine\.dtype=half is not known; choose one of auto, float32, "):
        served_dtype("half", "float32")


@pytest.mark.parametrize("in_memory", [False, True])
def test_the_torch_engine_serves_float16_of_a_float32_model(
    tiny_source: ModelSource, in_memory: bool, bound, requests, sampling
):
    """What it says of its rollouts is near what the float32 engine says, and its weights are those of the trainer."""
    source = ModelInMemory.of(tiny_source.load(), None) if in_memory else tiny_source
    engine, exact = TorchEngine(source, dtype="float16"), TorchEngine(source)
    for one in (engine, exact):
        one.start(CPU)
    assert (engine.dtype, exact.dtype) == (torch.float16, torch.float32)
    assert {weight.dtype for weight in engine.lm.parameters()} == {torch.float16}
    weights = dict(source.load().named_parameters())
    engine.sync_loaded(weights.items())
    made = engine.generate(requests[:4], sampling, bound(engine, NeighborMixing(rate=0.5)))
    again = exact.generate(requests[:4], sampling, bound(exact, NeighborMixing(rate=0.5)))
    for one, other in zip(made, again, strict=True):
        if torch.equal(one.response_ids, other.response_ids):
            torch.testing.assert_close(one.generated_log_probs, other.generated_log_probs, atol=0.02, rtol=0)
    assert any(torch.equal(one.response_ids, other.response_ids) for one, other in zip(made, again, strict=True))


def test_weights_that_float16_cannot_hold_are_refused(tiny_source: ModelSource):
    engine = TorchEngine(tiny_source, dtype="float16")
    engine.start(CPU)
    weights = {name: weight.detach().clone() for name, weight in tiny_source.load().named_parameters()}
    weights["lm_head.weight"][0, 0] = 7e4
    with pytest.raises(RunError, match=r"^the weight lm_head\.weight has numbers beyond the 65504 of rollout\.engine"):
        engine.sync_weights(weights.items())
    wide = TorchEngine(replace(tiny_source, dtype="bfloat16"))
    wide.start(CPU)
    wide.sync_weights(weights.items())


def test_so_are_those_of_a_model_in_memory(tiny_source: ModelSource):
    lm = tiny_source.load()
    with torch.no_grad():
        lm.lm_head.weight[0, 0] = 7e4
    with pytest.raises(RunError, match=r"^the weight lm_head\.weight has numbers beyond the 65504 of rollout\.engine"):
        TorchEngine(lm, dtype="float16").start(CPU)
    TorchEngine(lm, dtype="bfloat16").start(CPU)
