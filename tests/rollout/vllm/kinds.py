"""Serves a tiny random model of a kind that vLLM treats in its own way, in a process where no other engine has been.

    python kinds.py olmo2 FOLDER                  vLLM runs it by transformers
    python kinds.py olmo2 FOLDER --own-process
    python kinds.py qwen3_moe FOLDER              the CPU build rearranges its experts
    python kinds.py qwen3 FOLDER                  it has no place for one of the biases
    python kinds.py gemma3 FOLDER                 it scales its embedding after the lookup, which is its head, too

Prints a JSON report: how far the engine's log-probs are from the model's own, or what was refused.
"""

import argparse
import json

import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, Olmo2Config, Qwen3Config, Qwen3MoeConfig
from vllm_checks import MIXING, start_engine

from ngrpo.errors import RunError
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.model_check.comparison import requests, sampling
from ngrpo.model_check.own_scores import own_scores
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel

SIZES = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 256, "initializer_range": 0.3, "pad_token_id": 0,
    "tie_word_embeddings": False,
}  # fmt: skip
CONFIGS = {
    "gemma3": Gemma3TextConfig(
        **SIZES | {"tie_word_embeddings": True, "initializer_range": 0.08},  # else it repeats its token for certain
        head_dim=32,
        query_pre_attn_scalar=32,
        layer_types=["full_attention"] * 2,
    ),
    "olmo2": Olmo2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=32, attention_bias=True),
    "qwen3_moe": Qwen3MoeConfig(
        **SIZES, head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, mlp_only_layers=[]
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=list(CONFIGS))
    parser.add_argument("folder")
    parser.add_argument("--own-process", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(CONFIGS[arguments.kind]).save_pretrained(arguments.folder)
    source = ModelSource(arguments.folder)
    policy = ScoringModel(source.load())
    try:
        engine = start_engine(source, own_process=arguments.own_process)
        engine.sync_loaded(policy.lm.named_parameters())
    except RunError as refused:
        print(json.dumps({"refused": str(refused)}))
        return
    bound = bind(MIXING, engine.embedding(), Vocabulary(64, frozenset(), {}))
    rollouts = engine.generate(requests(64, 64, True), sampling(0.8, 24), bound)
    own = own_scores(policy, rollouts, 0.8, MIXING, together=False)
    made = torch.cat([rollout.log_probs for rollout in rollouts])
    plain = own_scores(policy, [rollout.without_mixtures() for rollout in rollouts], 0.8, MIXING, together=False)
    engine.close()
    print(json.dumps({"off": float((own - made).abs().max()), "ignored": float((plain - made).abs().max())}))


if __name__ == "__main__":
    main()
