"""Runs the engine over two workers and holds its rollouts to the torch engine's, before and after a hand-over.

A script of its own, since vLLM starts processes that import the main module. Prints a JSON report.
"""

import json

import torch
from vllm_checks import MIXING, assert_same_rollouts, mixed_total, random_requests, start_engine

from ngrpo.exploration.bound import bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.torch_engine import TorchEngine
from ngrpo.rollout.types import Sampling

SAMPLING = Sampling(temperature=0.8, max_new_tokens=40, stop_ids=(0,))


def main() -> None:
    source = ModelSource()
    oracle = TorchEngine(source)
    oracle.start(torch.device("cpu"))
    bound = bind(MIXING, oracle.embedding(), Vocabulary.of(source.tokenizer()))
    engine = start_engine(source, workers=2)
    requests = random_requests(6, 20, 60, samples=2)
    report = {}
    for name, scale in (("loaded", 1.0), ("handed over", 1.1)):
        weights = [(parameter, tensor * scale) for parameter, tensor in oracle.lm.named_parameters()]
        oracle.sync_weights(weights)
        engine.sync_weights(weights)
        rollouts = engine.generate(requests, SAMPLING, bound)
        assert_same_rollouts(rollouts, oracle.generate(requests, SAMPLING, bound))
        assert torch.equal(engine.embedding()[: len(oracle.embedding())], oracle.embedding())
        report[name] = mixed_total(rollouts)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
