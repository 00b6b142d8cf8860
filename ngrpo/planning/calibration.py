"""A small calibration: how fast this device makes forward and backward passes of a model's layers."""

import copy
import time

import torch

from ngrpo.modeling.attention import PackedAttention
from ngrpo.modeling.cost import PassCost
from ngrpo.modeling.policy import ScoringModel
from ngrpo.planning.meta_model import meta_model
from ngrpo.planning.run_settings import RunSettings

_LAYERS = 2
_TOKENS_ON_CPU = 256


def measured_flops(run: RunSettings, device: torch.device) -> float:
    """Times two layers of random weights, without checkpointing or compilation.

    Returns:
        Floating-point operations a second; those of a forward and a backward pass are counted.
    """
    config = copy.deepcopy(run.config)
    config.num_hidden_layers, config.vocab_size, config.pad_token_id = _LAYERS, 8, None
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:_LAYERS]
    tokens = run.pass_tokens if device.type == "cuda" else min(run.pass_tokens, _TOKENS_ON_CPU)
    model: ScoringModel = meta_model(config, run.computed_in, None, run.trust_remote_code).to_empty(device=device)
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data.normal_(std=0.02)
    inputs = torch.randn(1, tokens, config.hidden_size, dtype=run.computed_in, device=device)
    positions = torch.arange(tokens, device=device)[None]

    def once() -> float:
        start = _now(device)
        plan = PackedAttention([tokens], device)
        model.lm.base_model(
            inputs_embeds=inputs, position_ids=positions, use_cache=False, plan=plan
        ).last_hidden_state.float().square().mean().backward()
        return _now(device) - start

    once()
    return 3 * PassCost.of(config)(tokens) / min(once() for _ in range(3))


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
