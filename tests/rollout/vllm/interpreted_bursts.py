"""Makes the same rollouts in Model Runner V2 with bursts and without, on the CPU, its Triton kernels interpreted.

    python interpreted_bursts.py neighbor --bursts 5 32 [--blocks 9] [--workers 2] [--asynchronous]

A script of its own (see `interpreted_triton`). Prints a JSON report.
"""

import argparse
import json
from dataclasses import replace
from typing import Any

import torch
from vllm_checks import (
    KINDS,
    as_one_piece,
    asking,
    continued,
    count_preemptions,
    random_requests,
    schedule_asynchronously,
    start_engine,
)

from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.vllm import burst_scheduler
from ngrpo.rollout.vllm.engine import VllmEngine
from ngrpo.types.rollouts import Request, Rollout, Sampling

SAMPLING = Sampling(temperature=0.8, max_new_tokens=41, stop_ids=tuple(range(20)))
LONG = replace(SAMPLING, stop_ids=())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("--bursts", type=int, nargs="+", required=True)
    parser.add_argument("--blocks", type=int, default=160)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--long", action="store_true", help="responses that nothing ends before their budget")
    parser.add_argument("--asynchronous", action="store_true", help="schedule as on a GPU")
    parser.add_argument("--joinable", action="store_true", help="begin short, as batches do that others may join")
    arguments = parser.parse_args()
    if not arguments.joinable:
        burst_scheduler.most_steps = lambda made: max(arguments.bursts)
    made = {burst: rollouts_of(arguments, burst) for burst in (1, *arguments.bursts)}
    expected, _ = made.pop(1)
    report = {
        burst: {
            "responses": len(rollouts),
            "lengths": sorted({len(rollout.response_ids) for rollout in rollouts}),
            "same_tokens": all(map(same_tokens, rollouts, expected)),
            "same_bits": sum(map(same_bits, rollouts, expected)),
            "log_probs": max(map(log_prob_difference, rollouts, expected)),
            "entropies": max(map(recorded_difference, rollouts, expected)),
            "recorded": sum(rollout.distributions is not None for rollout in rollouts),
            **counts,
        }
        for burst, (rollouts, counts) in made.items()
    }
    print(json.dumps(report))


def rollouts_of(arguments: argparse.Namespace, burst: int) -> tuple[list[Rollout], dict[str, Any]]:
    """The rollouts, and how they came about: long and short prompts, budgets, prefixes, fewer slots than requests."""
    source, strategy = ModelSource(), KINDS[arguments.kind]
    engine = start_engine(
        source, strategy, workers=arguments.workers, burst=burst, num_gpu_blocks_override=arguments.blocks
    )
    preempted: list[str] = count_preemptions(engine) if arguments.workers == 1 else []
    if arguments.asynchronous:
        schedule_asynchronously(engine)
    lengths, wasted = note_bursts(engine), note_wasted(engine)
    bound = bind(strategy, engine.embedding(), Vocabulary.of(source.tokenizer()))
    requests = random_requests(6, 20, 60)
    sampling = LONG if arguments.long else SAMPLING
    rollouts = engine.generate(requests, sampling, bound)
    rollouts += engine.generate(requests, replace(LONG, max_new_tokens=9), bound)
    rollouts += engine.generate(requests, sampling, bound, slots=2)
    rollouts += engine.generate(asking(requests), replace(sampling, distributions=strategy.sums_rows), bound, slots=4)
    if not strategy.stateful:
        rollouts += going_on(engine, rollouts[: len(requests)], sampling, bound)
    core = engine.llm.llm_engine.engine_core.engine_core
    while core.batch_queue:
        core.step_fn()  # what was scheduled before the last response had ended
    engine.close()
    return rollouts, {
        "preemptions": len(preempted), "bursts": lengths, "told": engine.wasted_tokens, "wasted": sum(wasted)
    }  # fmt: skip


def going_on(engine: VllmEngine, rollouts: list[Rollout], sampling: Sampling, bound: Any) -> list[Rollout]:
    """Continuations, each of another budget."""
    cut = [rollout for rollout in rollouts if rollout.length > 1]
    requests: list[Request] = [continued(r, min(3 * i + 1, r.length - 1)) for i, r in enumerate(cut)]
    return as_one_piece(engine.generate(requests, sampling, bound), cut)


def note_bursts(engine: VllmEngine) -> list[int]:
    """Returns a list to which every later burst adds its length."""
    lengths: list[int] = []
    core = engine.llm.llm_engine.engine_core.engine_core
    execute = core.model_executor.execute_model

    def noted(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        lengths.append(getattr(scheduler_output, "ngrpo_burst", 1))
        return execute(scheduler_output, *args, **kwargs)

    core.model_executor.execute_model = noted
    return lengths


def note_wasted(engine: VllmEngine) -> list[int]:
    """Returns a list to which every later burst adds its tokens that vLLM has no use for."""
    scheduler = engine.llm.llm_engine.engine_core.engine_core.scheduler
    update, wasted = scheduler.update_from_output, []

    def noted(scheduler_output: Any, output: Any) -> Any:
        steps = getattr(scheduler_output, "ngrpo_burst", 1)
        live = [i for i in scheduler_output.num_scheduled_tokens if i in scheduler.requests]
        used = sum(len(output.sampled_token_ids[output.req_id_to_index[i]]) for i in live)
        if steps > 1:
            wasted.append(steps * len(scheduler_output.num_scheduled_tokens) - used)
        return update(scheduler_output, output)

    scheduler.update_from_output = noted
    return wasted


def same_tokens(a: Rollout, b: Rollout) -> bool:
    return a.response_ids.tolist() == b.response_ids.tolist() and a.stop_reason is b.stop_reason


def same_bits(a: Rollout, b: Rollout) -> bool:
    channels = zip(a.mixture.record, b.mixture.record, strict=True)
    alike = all(x is y is None or torch.equal(x, y) for x, y in channels)
    alike = alike and (a.support is b.support is None or torch.equal(a.support.rows(), b.support.rows()))
    alike = alike and all(map(torch.equal, a.distributions or (), b.distributions or ()))
    return alike and torch.equal(a.mixture.positions, b.mixture.positions) and torch.equal(a.log_probs, b.log_probs)


def log_prob_difference(a: Rollout, b: Rollout) -> float:
    return float((a.log_probs - b.log_probs).abs().max()) if len(a.log_probs) == len(b.log_probs) else float("inf")


def recorded_difference(a: Rollout, b: Rollout) -> float:
    """Of entropies; 1 for other tokens."""
    if a.distributions is None or b.distributions is None:
        return 0.0 if a.distributions is b.distributions else float("inf")
    alike = torch.equal(a.distributions.ids, b.distributions.ids)
    return float((a.distributions.entropy - b.distributions.entropy).abs().max()) if alike else 1.0


if __name__ == "__main__":
    main()
