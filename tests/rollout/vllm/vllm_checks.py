"""Requests of the demo model and comparisons of rollouts, shared by the vLLM tests."""

import faulthandler
import json
import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration, Step, StepContext
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.random import request_key
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.exploration.runtime.strategy_errors import StrategyError
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.vllm.engine import VllmEngine
from ngrpo.types.distributions import Distributions
from ngrpo.types.rollouts import Mixture, Prefix, Request, Rollout, Sampling
from ngrpo.types.support import Support


@dataclass(frozen=True)
class ByHidden(Exploration):
    """Mixes the two most likely tokens where the last hidden state says so, by the weights that it says."""

    end_token: str | None = None

    width = 2
    reads_hidden = True

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        assert ctx.hidden is not None
        mixed = ctx.hidden[:, 0] > ctx.hidden[:, 1]
        weights = ctx.hidden[:, 2:4].float().softmax(-1)
        return Step(ctx.sample(logits), mixed, logits.topk(2).indices, weights)


MIXING = NeighborMixing(rate=0.4, k=3, end_token=None)
CPU = torch.device("cpu")
KINDS: dict[str, Exploration] = {
    "neighbor": MIXING,
    "gaussian": GaussianSoftTokens(end_token=None),
    "hrpo": HybridReasoning(r_min=0.5, r_max=0.9, end_token=None),
    "hidden": ByHidden(),
    "truncated": MinPSampling(0.02, largest_support=12),
}
"""Sums of rows, recorded vectors, vectors of what was learned, sums that depend on the hidden state, supports."""
UNSTOPPED = Sampling(temperature=0.8, max_new_tokens=96, stop_ids=(0,))
"""Padding is hardly ever drawn, so that responses become long."""
FORCED = 300
NOISY_ERROR = 5e-3
"""Most by which the trainer's scores of noisy strategies may differ (see `replay_error`). They magnify rounding by one
over the noise: a trainer in float32 and one in float64 differ by 1e-3, and vectors recorded in float16 by 8e-3."""


class FailsLater(NeighborMixing):
    """Sound when it is tried with two rows; its author did not think of twelve."""

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        if len(logits) > 2:
            raise KeyError("a typing error of the author")
        return super().step(logits, ctx)


@dataclass(frozen=True)
class RunsOut(NeighborMixing):
    """Finds no memory for one step, when a file says so: a failure of the engine, not of its author's code."""

    marker: str = ""

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        if len(logits) > 2 and os.path.exists(self.marker):
            os.unlink(self.marker)
            raise torch.OutOfMemoryError("no memory for a step")
        return super().step(logits, ctx)


def assert_author_is_informed(engine: VllmEngine, bound: BoundExploration) -> None:
    """A strategy that fails in the engine is shown with its file and line, and the engine lives on."""
    requests = random_requests(6, 20, 60, samples=2)
    sampling = replace(UNSTOPPED, max_new_tokens=8)
    before = engine.generate(requests, sampling, bound)
    broken = replace(bound, strategy=FailsLater(rate=0.4, k=3, end_token=None))
    with pytest.raises(StrategyError) as caught:
        engine.generate(requests, sampling, broken)
    said = str(caught.value)
    assert "KeyError: 'a typing error of the author'" in said
    assert f'File "{__file__}"' in said
    assert "in step" in said
    assert_same_rollouts(engine.generate(requests, sampling, bound), before)


WIRE_FAULTS: dict[str, Callable[[Tensor], list[Tensor]]] = {
    "dropped": lambda w: [],
    "twice": lambda w: [w, w],
    "permuted": lambda w: [w.flip(0)],
    "negated": lambda w: [-w],
    "not a number": lambda w: [w * float("nan")],
    "zeros": lambda w: [w * 0],
    "stale": lambda w: [w / 1.1],
    "altered in one place": lambda w: [w.index_fill(0, torch.tensor([len(w) - 1], device=w.device), 0.5)],
}
"""What becomes of one tensor on its way to the workers."""


class FaultySender:
    """Sends what a fault leaves of one tensor, and all others as they are."""

    def __init__(self, sender: Any, name: str, fault: Callable[[Tensor], list[Tensor]]) -> None:
        self.sender, self.name, self.fault = sender, name, fault

    def send(self, bucket: list[tuple[str, Tensor]], update: Any) -> None:
        faulty = [(n, part) for n, w in bucket for part in (self.fault(w) if n == self.name else [w])]
        self.sender.send(faulty, update)


def assert_wrong_transfers_are_caught(engine: VllmEngine, weights: dict[str, Tensor], names: Sequence[str]) -> None:
    """Faults of single tensors are named, and the engine is of no use until a whole set of weights has come.

    So is a served parameter that nothing was sent for, whichever it is: no worker takes what it held for new.
    """
    sender = engine._transfer._sender
    for name in names:
        for fault in WIRE_FAULTS.values():
            engine._transfer._sender = FaultySender(sender, name, fault)
            with pytest.raises(RuntimeError, match=f"vLLM received other weights than were sent: {re.escape(name)}$"):
                engine.sync_weights(weights.items())
    engine._transfer._sender = sender
    for name in weights:
        with pytest.raises(RuntimeError, match="vLLM serves parameters that no weights came for: "):
            engine.sync_weights((other, weight) for other, weight in weights.items() if other != name)
    for use in (engine.embedding, lambda: engine.generate(random_requests(1, 5, 5), UNSTOPPED, None)):
        with pytest.raises(RuntimeError, match="does not serve a whole set of weights since a transfer failed"):
            use()
    assert engine.weight_version == "incomplete"
    engine.sync_weights(weights.items())
    assert len(engine.weight_version) == 16


def random_requests(number: int, shortest: int, longest: int, samples: int = 1, **options: Any) -> list[Request]:
    """``number`` random prompts of the demo's vocabulary, ``samples`` rollouts each."""
    generator = torch.Generator().manual_seed(number)
    lengths = torch.randint(shortest, longest + 1, (number,), generator=generator).tolist()
    prompts = [tuple(torch.randint(3, 570, (length,), generator=generator).tolist()) for length in lengths]
    return [
        Request(ids, request_key(3, 0, prompt, sample), **options)
        for prompt, ids in enumerate(prompts)
        for sample in range(samples)
    ]


def asking(requests: Sequence[Request]) -> list[Request]:
    """Some for a first token, some for likeliest tokens, some for both, some for nothing."""
    return [replace(one, forced_token=FORCED if n % 2 else None, likeliest=n % 4 > 1) for n, one in enumerate(requests)]


def run_interpreted(script: str, *arguments: str) -> dict[str, Any]:
    """Runs a script on Model Runner V2, Triton's kernels interpreted, in a process of its own; returns its report."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here / "interpreted_triton"), *filter(None, [os.environ.get("PYTHONPATH")])])
    runner = {"TRITON_INTERPRET": "1", "VLLM_USE_V2_MODEL_RUNNER": "1", "TORCHDYNAMO_DISABLE": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, str(here / script), *arguments], env=os.environ | runner, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def say_where_it_hangs() -> None:
    """Ends a script shortly before its test would (after 500 seconds), with the stacks of its threads."""
    faulthandler.dump_traceback_later(480, exit=True)


def keep_process_groups() -> None:
    """Leaves engines of this process the groups that they share, which one that ends or cannot start would destroy."""
    from vllm.v1.engine import core

    core.cleanup_dist_env_and_memory = lambda: None


def start_engine(
    source: ModelSource,
    exploration: Exploration = MIXING,
    eager: bool = True,
    workers: int = 1,
    own_process: bool = False,
    dtype: str = "auto",
    device: torch.device = CPU,
    burst: int = 32,
    enable_sleep_mode: bool = True,
    **options: Any,
) -> VllmEngine:
    """Starts an engine of 16 rows with a cache that holds them all, in blocks of 32 tokens, the smallest on a CPU."""
    options = {"block_size": 32, "num_gpu_blocks_override": 160} | options
    engine = VllmEngine(
        source,
        exploration,
        max_prompt_tokens=160,
        max_new_tokens=96,
        max_batch_size=16,
        dtype=dtype,
        gpu_memory_utilization=0.2,
        tensor_parallel_size=workers,
        enforce_eager=eager,
        own_process=own_process,
        enable_sleep_mode=enable_sleep_mode,
        burst=burst,
        options=options,
    )
    keep_process_groups()
    engine.start(device)
    return engine


def schedule_asynchronously(engine: VllmEngine) -> None:
    """Has vLLM schedule the next step before it knows the tokens of the last, which it does on GPUs alone."""
    core = engine.llm.llm_engine.engine_core.engine_core
    assert core.batch_queue is None
    core.batch_queue_size, core.batch_queue = 2, deque(maxlen=2)
    core.step_fn = core.step_with_batch_queue
    core.async_scheduling = core.vllm_config.scheduler_config.async_scheduling = True


def greedy_beside(engine: VllmEngine, job: Callable[[], Any]) -> tuple[list[int], Tensor]:
    """Tokens and log-probs of a request that somebody else makes of vLLM, without temperature, while a job runs."""
    from vllm import SamplingParams
    from vllm.inputs import tokens_input

    llm, ended = engine.llm.llm_engine, []
    step = llm.step

    def noted() -> list[Any]:
        outputs: list[Any] = step()
        ended.extend(one.outputs[0] for one in outputs if one.finished and one.request_id == "other")
        return outputs

    llm.step = noted
    greedy = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True, detokenize=False, logprobs=0)
    llm.add_request("other", tokens_input(list(range(5, 30))), greedy)
    job()
    while llm.has_unfinished_requests():
        llm.step()
    llm.step = step
    (output,) = ended
    scores = [at[token].logprob for token, at in zip(output.token_ids, output.logprobs, strict=True)]
    return list(output.token_ids), torch.tensor(scores)


def count_preemptions(engine: VllmEngine) -> list[str]:
    """Returns a list to which every later preemption adds its request's id."""
    scheduler = engine.llm.llm_engine.engine_core.engine_core.scheduler
    preempt, seen = scheduler._preempt_request, []

    def noted(request: Any, *args: Any, **kwargs: Any) -> None:
        seen.append(request.request_id)
        preempt(request, *args, **kwargs)

    scheduler._preempt_request = noted
    return seen


def assert_same_rollouts(ours: Sequence[Rollout], oracle: Sequence[Rollout], atol: float = 1e-4) -> None:
    """``atol`` is that of log-probs and records."""
    for a, b in zip(ours, oracle, strict=True):
        assert a.prompt_ids.tolist() == b.prompt_ids.tolist()
        assert a.response_ids.tolist() == b.response_ids.tolist()
        assert a.mixture.positions.tolist() == b.mixture.positions.tolist()
        assert a.mixture.record.ids.tolist() == b.mixture.record.ids.tolist()
        assert a.stop_reason is b.stop_reason
        assert a.key == b.key
        for ours_channel, other in zip(a.mixture.record[1:], b.mixture.record[1:], strict=True):
            assert (ours_channel is None) == (other is None)
            if ours_channel is not None:
                torch.testing.assert_close(ours_channel, other, atol=atol, rtol=0)
        torch.testing.assert_close(a.log_probs, b.log_probs, atol=atol, rtol=0)
        assert same_supports(a, b)
        assert (a.distributions is None) == (b.distributions is None)
        for ours_channel, other in zip(a.distributions or (), b.distributions or (), strict=True):
            torch.testing.assert_close(ours_channel, other, atol=atol, rtol=atol)


def same_supports(a: Rollout, b: Rollout) -> bool:
    """The same ids at each position, in any order."""
    if a.support is None or b.support is None:
        return a.support is b.support
    ours, other = (one.support.rows().sort(-1).values for one in (a, b))
    return torch.equal(ours, other)


def heads(rollouts: Sequence[Rollout], tokens: int) -> list[Rollout]:
    """The rollouts as they stood after so many tokens."""
    return [_head(r, tokens) for r in rollouts]


def _head(r: Rollout, tokens: int) -> Rollout:
    early = r.mixture.positions < len(r.prompt_ids) + tokens
    mixture = Mixture(r.mixture.positions[early], r.mixture.record.map(lambda channel: channel[early]))
    support = r.support and r.support.before(tokens)
    distributions = r.distributions and r.distributions.map(lambda channel: channel[:tokens])
    return replace(
        r,
        response_ids=r.response_ids[:tokens],
        log_probs=r.log_probs[:tokens],
        mixture=mixture,
        support=support,
        distributions=distributions,
    )


def continued(rollout: Rollout, given: int) -> Request:
    """The request that goes on from a rollout's first tokens."""
    early = _head(rollout, given)
    prefix = Prefix(tuple(early.response_ids.tolist()), early.mixture)
    return Request(tuple(rollout.prompt_ids.tolist()), rollout.key, prefix=prefix)


def as_one_piece(going_on: Sequence[Rollout], whole: Sequence[Rollout]) -> list[Rollout]:
    """Continuations with the log-probs that the ``whole`` rollouts have where the prefix stood."""
    return [
        replace(
            r,
            prefix_length=0,
            log_probs=torch.cat([w.log_probs[: r.prefix_length], r.log_probs[r.prefix_length :]]),
            support=r.support and Support.cat([w.support.before(r.prefix_length), r.support.after(r.prefix_length)]),
            distributions=r.distributions
            and Distributions(
                *(
                    torch.cat([first[: r.prefix_length], rest[r.prefix_length :]])
                    for first, rest in zip(w.distributions, r.distributions, strict=True)
                )
            ),
        )
        for r, w in zip(going_on, whole, strict=True)
    ]


def replay_error(
    rollouts: Sequence[Rollout], strategy: Exploration, temperature: float, model: ScoringModel, ignore: bool = False
) -> float:
    """The largest difference between the recorded log-probs and the trainer's; ``ignore`` takes away the mixtures.

    Relative where log-probs are large, as those of Gaussian vectors are (about -d/2).
    """
    batch = pack([r.without_mixtures() for r in rollouts] if ignore else rollouts)
    with torch.no_grad():
        scores = model(batch, temperature, strategy).log_prob
    recorded = torch.cat([r.log_probs for r in rollouts])
    return float(((scores - recorded).abs() / recorded.abs().clamp(min=10.0) * 10.0).max())


def mixed_total(rollouts: Sequence[Rollout]) -> int:
    return sum(len(r.mixture.positions) for r in rollouts)
