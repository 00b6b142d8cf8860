"""Runs Model Runner V2 on the CPU, its Triton kernels interpreted, and holds its rollouts to the torch engine's.

A script of its own (see `interpreted_triton`). Prints a JSON report.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch
from vllm_checks import (
    KINDS,
    as_one_piece,
    asking,
    assert_same_rollouts,
    continued,
    count_preemptions,
    greedy_beside,
    heads,
    mixed_total,
    random_requests,
    replay_error,
    start_engine,
)

from ngrpo.exploration.runtime.bound import BoundExploration, bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.vllm.engine import VllmEngine
from ngrpo.types.rollouts import Request, Rollout, Sampling

SAMPLING = Sampling(temperature=0.8, max_new_tokens=40, stop_ids=(0,))
COLD = replace(SAMPLING, temperature=0.5, max_new_tokens=24)


def at_once(engine: VllmEngine, requests: list[Request], bound: BoundExploration) -> list[list[Rollout]]:
    """Rollouts of two callers, of whom the first has fewer slots than requests."""
    with ThreadPoolExecutor(2) as pool:
        few = pool.submit(engine.generate, requests, SAMPLING, bound, slots=2)
        other = pool.submit(engine.generate, requests, COLD, bound)
        return [few.result(), other.result()]


def main() -> None:
    source = ModelSource()
    oracle = TorchEngine(source)
    oracle.start(torch.device("cpu"))
    strategy = KINDS[sys.argv[1]]
    bound = bind(strategy, oracle.embedding(), Vocabulary.of(source.tokenizer()))
    engine = start_engine(source, strategy, max_num_batched_tokens=32, num_gpu_blocks_override=9)
    preempted = count_preemptions(engine)
    requests = random_requests(6, 20, 60)
    rollouts = engine.generate(requests, SAMPLING, bound)
    compared, atol = (SAMPLING.max_new_tokens, 1e-4) if strategy.sums_rows else (5, 2e-3)
    expected = oracle.generate(requests, SAMPLING, bound)
    assert_same_rollouts(heads(rollouts, compared), heads(expected, compared), atol)
    few, other = at_once(engine, requests, bound)
    assert_same_rollouts(heads(few, compared), heads(rollouts, compared), atol)
    assert_same_rollouts(heads(other, compared), heads(engine.generate(requests, COLD, bound), compared), atol)
    alone = greedy_beside(engine, lambda: None)
    beside = greedy_beside(engine, lambda: few.extend(engine.generate(requests[:2], SAMPLING, bound)))
    assert beside[0] == alone[0]
    torch.testing.assert_close(beside[1], alone[1], atol=1e-4, rtol=0)
    assert_same_rollouts(heads(few[-2:], compared), heads(rollouts[:2], compared), atol)
    if strategy.sums_rows:
        asked, recorded = asking(requests), replace(SAMPLING, distributions=True)
        steered = engine.generate(asked, recorded, bound)
        assert_same_rollouts(steered, oracle.generate(asked, recorded, bound))
    given = 20
    going_on = engine.generate([continued(rollout, given) for rollout in rollouts], SAMPLING, bound)
    same = as_one_piece(going_on, rollouts)
    assert_same_rollouts(heads(same, given + compared), heads(rollouts, given + compared), atol)
    report = {
        "state": type(engine._call("ngrpo_hooks")[0]).__name__,
        "preemptions": len(preempted),
        "mixed": mixed_total(rollouts),
        "error": replay_error(rollouts, strategy, SAMPLING.temperature, ScoringModel(source.load(), bound.parameters)),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
