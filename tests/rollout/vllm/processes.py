"""A script that runs the engine in other processes and compares it with the torch engine, around a weight transfer.

    python processes.py --workers 2          tensor parallelism
    python processes.py --own-process        one engine process

A script of its own, since vLLM starts processes that import the main module. Prints a JSON report: mixed positions in
the rollouts. On a GPU it runs there, in float32 like everywhere, but vLLM's attention multiplies in TF32 then.
"""

import argparse
import json
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
from vllm_checks import (
    KINDS,
    asking,
    assert_author_is_informed,
    assert_same_rollouts,
    assert_wrong_transfers_are_caught,
    heads,
    mixed_total,
    random_requests,
    say_where_it_hangs,
    start_engine,
)

from ngrpo.exploration.runtime.bound import BoundExploration, bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.vllm.engine import VllmEngine
from ngrpo.types.rollouts import Request, Rollout, Sampling

TOLERANCE = 0.05 if torch.cuda.is_available() else 1e-4
SAMPLING = Sampling(temperature=0.8, max_new_tokens=40, stop_ids=(0,))
RECORDED = replace(SAMPLING, distributions=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--own-process", action="store_true")
    parser.add_argument("--exploration", choices=list(KINDS), default="neighbor")
    parser.add_argument("--restart", action="store_true", help="lose the engine between the rounds, and build it anew")
    parser.add_argument("--save", help="file for the rollouts")
    arguments = parser.parse_args()
    say_where_it_hangs()
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    source = ModelSource()
    strategy = KINDS[arguments.exploration]
    # Vectors that are fed back make the last bits grow.
    compared, tolerance = (SAMPLING.max_new_tokens, TOLERANCE) if strategy.sums_rows else (5, 20 * TOLERANCE)
    engine = start_engine(
        source,
        strategy,
        workers=arguments.workers,
        own_process=arguments.own_process,
        dtype="float32",
        eager=device.type == "cpu",
        device=device,
    )
    oracle = TorchEngine(source)
    oracle.start(device)
    bound = bind(strategy, oracle.embedding(), Vocabulary.of(source.tokenizer()))
    requests, asked = random_requests(6, 20, 60, samples=2), asking(random_requests(4, 20, 60, samples=4))
    report, made = {}, []
    for name, scale in (("loaded", 1.0), ("transferred", 1.1)):
        weights = [(parameter, tensor * scale) for parameter, tensor in oracle.lm.named_parameters()]
        if arguments.restart and made:
            processes = multiprocessing.active_children()
            lose(engine, requests, bound)
            engine.close()
            assert not any(exists(process) for process in processes)
            engine.start(device)
        if made:
            engine.sleep()
            engine.wake()
        oracle.sync_weights(weights)
        engine.sync_weights(weights)
        rollouts = engine.generate(requests, SAMPLING, bound)
        expected = oracle.generate(requests, SAMPLING, bound)
        assert_same_rollouts(heads(rollouts, compared), heads(expected, compared), tolerance)
        assert torch.equal(engine.embedding()[: len(oracle.embedding())].cpu(), oracle.embedding().cpu())
        if strategy.sums_rows:
            repeated, expected_of_them = (
                one.generate(repeating(rollouts), SAMPLING, bound) for one in (engine, oracle)
            )
            assert_same_rollouts(repeated, expected_of_them, TOLERANCE)
            steered, expected_of_them = (one.generate(asked, RECORDED, bound) for one in (engine, oracle))
            assert_same_rollouts(steered, expected_of_them, TOLERANCE)
        report[name] = mixed_total(rollouts)
        made += rollouts
    if arguments.exploration == "neighbor":
        assert_author_is_informed(engine, bound)
        assert_callers_share(engine, requests, bound)
        assert_wrong_transfers_are_caught(engine, dict(weights), ["model.layers.1.self_attn.k_proj.weight"])
        again = engine.generate(requests, SAMPLING, bound)
        assert_same_rollouts(heads(again, compared), heads(expected, compared), tolerance)
    if arguments.save:
        torch.save(made, arguments.save)
    print(json.dumps(report))


def repeating(rollouts: list[Rollout]) -> list[Request]:
    """Requests whose prompts are mixed responses token by token: no cached block of these is theirs."""
    return [Request((*r.prompt_ids.tolist(), *r.response_ids.tolist()), r.key) for r in rollouts]


def assert_callers_share(engine: VllmEngine, requests: list[Request], bound: BoundExploration) -> None:
    """Two callers at once, one of which has fewer slots than requests, get what each gets alone."""
    cold = replace(SAMPLING, temperature=0.5, max_new_tokens=24)
    alone = engine.generate(requests, SAMPLING, bound), engine.generate(requests, cold, bound)
    with ThreadPoolExecutor(2) as pool:
        few = pool.submit(engine.generate, requests, SAMPLING, bound, slots=3)
        other = pool.submit(engine.generate, requests, cold, bound)
        assert_same_rollouts(few.result(), alone[0], TOLERANCE)
        assert_same_rollouts(other.result(), alone[1], TOLERANCE)


def exists(process: BaseProcess) -> bool:
    """Asks the system: Python says nothing of one's end while a thread of vLLM's takes note of it."""
    return process.pid is not None and Path(f"/proc/{process.pid}").exists()


def lose(engine: VllmEngine, requests: list[Request], bound: BoundExploration) -> None:
    """Kills one of the engine's processes, if it has any, and expects it to say so."""
    children = multiprocessing.active_children()
    if children:
        children[-1].kill()
        children[-1].join()
        try:
            engine.generate(requests, SAMPLING, bound)
        except Exception:
            return
        raise AssertionError("a dead engine made rollouts")


if __name__ == "__main__":
    main()
