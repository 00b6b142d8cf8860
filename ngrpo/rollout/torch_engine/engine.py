"""The embedded engine in plain PyTorch: it runs everywhere, and other engines are tested against it."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.base import Exploration, Step, StepContext
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.exploration.runtime.compiled import compiled
from ngrpo.exploration.runtime.decide import decide
from ngrpo.exploration.runtime.distributions import distributions_of
from ngrpo.exploration.support import on_support
from ngrpo.modeling.attention import AttentionPlan, window_of
from ngrpo.modeling.embedding_scale import check_embedding_scale
from ngrpo.modeling.exact.model import exact_calls, make_exact
from ngrpo.modeling.exact.token_scores import exact_token_scores
from ngrpo.modeling.head import output_logits
from ngrpo.modeling.layers import CompiledLayers
from ngrpo.modeling.loading import DTYPES, ModelSource
from ngrpo.modeling.model_in_memory import ModelInMemory
from ngrpo.modeling.overflow import cast_weights
from ngrpo.modeling.packing import pack
from ngrpo.modeling.replay import replay
from ngrpo.modeling.rope import before_switch
from ngrpo.rollout.engine import NOT_STARTED, Report, ServingStream
from ngrpo.rollout.request_limits import check_positions, check_requests
from ngrpo.rollout.served_dtype import AUTO, served_dtype
from ngrpo.rollout.torch_engine.batch_state import BatchState
from ngrpo.rollout.torch_engine.burst import Steps, StepShape, captures
from ngrpo.rollout.torch_engine.kv_cache import DecodeAttention, PrefillAttention, SlotCache, number_layers
from ngrpo.rollout.torch_engine.prefill import distinct_beginnings, known_part
from ngrpo.rollout.torch_engine.stream import Operations, TorchStream
from ngrpo.types.rollouts import Request, Rollout, Sampling
from ngrpo.types.support import NO_ID
from ngrpo.utils.tempered import tempered

log = logging.getLogger(__name__)

_BURST_ON_GPU = 32
"""Some milliseconds of the host's, for its look, against a tenth of a second of steps."""


class TorchEngine:
    """Continuous batching over a preallocated cache: finished rows are dropped, waiting requests admitted.

    Requests that start with the same prompt and prefix and are admitted together share their prefill. Calls from
    several threads wait for one another: they would share the cache.

    Args:
        model: where the weights come from, or a causal language model in memory; the engine holds its own copy.
        max_batch_size: most rollouts running at once.
        compile: decode steps through torch.compile, prefills not; a last row alone runs uncompiled, since 1
            is a size that is compiled separately.
        burst: most decode steps between two looks of the host at which rows have finished; on a GPU they are replayed
            from CUDA graphs. What a row computes after its end is thrown away. 1 looks after every step and captures
            nothing; None is 32 on a GPU and 1 elsewhere.
        exact: computes the log-probs of an exact trainer, bit for bit (`ngrpo.modeling.exact`).
        dtype: of the served weights; "auto" is the model's own.

    Attributes:
        wasted: tokens that the rows of the last call computed after their end.
        wasted_tokens: the same of all calls.

    Raises:
        SettingError: a setting is out of range, or the engine cannot be exact with it.
    """

    several_ranks = True
    concurrent = True
    most_streams = 1
    tf32 = False
    checked_as = ""

    def __init__(
        self,
        model: ModelSource | PreTrainedModel,
        max_batch_size: int = 128,
        compile: bool = False,
        burst: int | None = None,
        exact: bool = False,
        dtype: str = AUTO,
    ) -> None:
        if max_batch_size < 1:
            raise SettingError(f"rollout.engine.max_batch_size={max_batch_size} runs nothing; choose 1 or more.")
        if burst is not None and burst < 1:
            raise SettingError(f"rollout.engine.burst={burst} makes no step; 1 looks after every step.")
        if exact and compile:
            raise SettingError(
                "rollout.engine.compile=true rounds otherwise than the trainer, and rollout.exact=true allows no "
                "difference; set rollout.engine.compile=false."
            )
        source = model if isinstance(model, ModelSource) else ModelInMemory.of(model)
        self.model = replace(source, dtype=served_dtype(dtype, source.dtype))
        self.exact = exact
        self.max_batch_size = max_batch_size
        self.compile = compile
        self.burst = burst
        self.wasted = self.wasted_tokens = 0
        self._uncaptured: set[str] = set()
        self._turn = threading.Lock()
        self._layers: CompiledLayers | None = None
        self._cache: SlotCache | None = None

    @property
    def dtype(self) -> torch.dtype:
        """That of the served weights."""
        return DTYPES[self.model.dtype]

    def start(self, device: torch.device) -> None:
        """Loads the model onto ``device``."""
        self.lm = self.model.load().to(device).requires_grad_(False)
        if self.exact:
            make_exact(self.lm)
        if self.compile:
            number_layers(self.lm)
            self._layers = CompiledLayers(self.lm.base_model.layers)

    def embedding(self) -> Tensor:
        """Returns the served input embedding table, [V, d]."""
        self._require_started()
        return self.lm.get_input_embeddings().weight

    @torch.no_grad()
    def sync_weights(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Copies new weights in.

        Raises:
            ValueError: a tensor that the model does not have, one of another shape, or one that is missing.
        """
        self._copy_in(tensors)

    @torch.no_grad()
    def sync_loaded(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Copies in the weights that are there already (see `RolloutEngine`)."""
        if changed := self._copy_in(tensors):
            raise RunError(
                f"model.path={self.model.path} gives other weights each time it is loaded ({changed[0]} and "
                f"{len(changed) - 1} more differ between trainer and engine); save the model anew, with all weights.",
                everywhere=True,
            )

    def _copy_in(self, tensors: Iterable[tuple[str, Tensor]]) -> list[str]:
        """Returns the names of the parameters that changed."""
        self._require_started()
        parameters, changed = dict(self.lm.named_parameters()), []
        for name, tensor in cast_weights(tensors, self.dtype):
            if name not in parameters:
                raise ValueError(f"weights for an unknown or repeated parameter: {name}")
            served = parameters.pop(name)
            if tensor.shape != served.shape:  # which copying would repeat to the other's size, where it can
                raise ValueError(f"weights of shape {list(tensor.shape)} for {name} of shape {list(served.shape)}")
            if not torch.equal(served, tensor.to(served.device)):
                changed.append(name)
            served.copy_(tensor)
        if parameters:
            raise ValueError(f"no weights came for {', '.join(sorted(parameters))}")
        return changed

    def _require_started(self) -> None:
        if "lm" not in vars(self):
            raise RuntimeError(NOT_STARTED)

    def check_load(self, strategy: Exploration, requests: int, max_new_tokens: int) -> None:
        """Refuses nothing: there is one record a slot, not one a request."""

    def sleep(self) -> None:
        """Frees the cache."""
        self._cache = None

    def wake(self) -> None:
        """Does nothing: the cache is made by the next `generate`."""

    def close(self) -> None:
        """Frees model and cache."""
        self._cache = self._layers = None
        self.__dict__.pop("lm", None)

    @torch.no_grad()
    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        exploration: BoundExploration,
        report: Report | None = None,
    ) -> list[Rollout]:
        """Makes one rollout a request, in their order (see `RolloutEngine`)."""
        if not requests:
            return []
        check_requests(requests, sampling, exploration.strategy, self.embedding().shape)
        limits = [one for one in (before_switch(self.lm.config), window_of(self.lm.config)) if one is not None]
        check_positions(requests, sampling, min(limits, default=None), self.model.path)
        explores, steered = all(r.explore for r in requests), any(r.steered for r in requests)
        with self._turn:
            stream = self._stream(sampling, exploration, explores, steered, grows=False, report=report)
            stream.add(requests)
            while stream.unfinished:
                stream.wait()
            self._end(stream)
            return stream.rollouts(range(len(requests)))

    @contextmanager
    def serving_stream(
        self, sampling: Sampling, exploration: BoundExploration, plain: bool, steered: bool = False
    ) -> Iterator[ServingStream]:
        """Opens a stream for requests of many askers (see `ServingEngine`)."""
        with self._turn, torch.no_grad():
            stream = self._stream(sampling, exploration, not plain, steered, grows=True, report=None)
            yield stream
            self._end(stream)

    def _stream(
        self,
        sampling: Sampling,
        exploration: BoundExploration,
        all_explore: bool,
        steered: bool,
        grows: bool,
        report: Report | None,
    ) -> TorchStream:
        table = self.embedding()
        check_embedding_scale(self.lm, exploration.strategy, self.model.path)
        operations = Operations(
            self._cache_for, self._steps, self._admit, self.max_batch_size, self._burst(table.device)
        )
        exploration = replace(exploration, progress=exploration.progress.to(table.device))
        return TorchStream(operations, sampling, exploration, table, all_explore, grows, report, steered)

    def _end(self, stream: TorchStream) -> None:
        self.wasted = stream.wasted
        self.wasted_tokens += self.wasted

    def _steps(self, batch: BatchState, cache: SlotCache, exploration: BoundExploration) -> Steps:
        """Returns the steps of a batch; a GPU's are captured."""

        def note(failure: str) -> None:
            self._note(failure, exploration.strategy)

        largest = self._largest_captured(exploration, cache, len(batch.keys))
        return Steps(partial(self._decode, batch, cache, exploration), largest, note)

    def _burst(self, device: torch.device) -> int:
        return self.burst or (_BURST_ON_GPU if device.type == "cuda" else 1)

    def _largest_captured(self, exploration: BoundExploration, cache: SlotCache, slots: int) -> StepShape | None:
        """Returns the shape of a whole batch if its steps are to be captured."""
        device = cache.data.device
        if not captures(device) or self._burst(device) == 1 or repr(exploration.strategy) in self._uncaptured:
            return None
        return StepShape(slots, cache.length)

    def _note(self, failure: str, strategy: Exploration) -> None:
        """Says once why the steps of a strategy cannot be captured."""
        self._uncaptured.add(repr(strategy))
        log.warning(
            "the decode steps of model.path=%s with %s run uncaptured: no CUDA graph can be made of them (%s)",
            self.model.path,
            strategy,
            failure,
        )

    def _cache_for(self, slots: int, length: int) -> SlotCache:
        if self._cache is None or not self._cache.fits(slots, length):
            self._cache = None
            # One more slot than rows: the compiler makes a graph of its own for sizes that happen to be equal.
            self._cache = SlotCache(self.lm.config, slots + 1, length, like=self.embedding())
        return self._cache

    def _decode(self, batch: BatchState, cache: SlotCache, exploration: BoundExploration, shape: StepShape) -> None:
        """Makes a step of the first rows; nothing is read back to the host."""
        plan = DecodeAttention(cache, batch.last_positions(shape.rows), shape.length)
        inputs, positions = batch.inputs[: shape.rows, None].clone(), plan.positions[:, None].clone()
        layers = self._layers if shape.rows > 1 else None
        with layers.running() if layers is not None else nullcontext():
            hidden = self._forward(inputs, positions, plan)
        self._step(batch, slice(0, shape.rows), hidden[:, 0], exploration)

    def _admit(
        self,
        batch: BatchState,
        cache: SlotCache,
        waiting: deque[tuple[int, Request]],
        room: int,
        exploration: BoundExploration,
    ) -> None:
        """Prefills the next requests, each distinct beginning once, and makes their first step."""
        admitted = [waiting.popleft() for _ in range(min(room, len(waiting)))]
        new = batch.admit([number for number, _ in admitted], [request for _, request in admitted])
        beginnings = distinct_beginnings([request for _, request in admitted], exploration.strategy)
        device = batch.keys.device
        given = pack([known_part(group.request, exploration.strategy, batch.inputs) for group in beginnings]).to(device)
        with exact_calls(self.lm):
            inputs = replay(self.lm.get_input_embeddings(), given, exploration.strategy, exploration.parameters)
        cache.clear(new)
        slots = [torch.tensor(group.rows, device=device) + new.start for group in beginnings]
        hidden = self._forward(inputs[None], given.positions[None], PrefillAttention(cache, given.lengths, slots))[0]
        last = hidden[torch.tensor(given.lengths, device=device).cumsum(0) - 1]
        first_step = last.new_empty(new.stop - new.start, last.shape[-1])
        for group, row in zip(slots, last, strict=True):
            first_step[group - new.start] = row
        forced = [NO_ID if request.forced_token is None else request.forced_token for _, request in admitted]
        steered = any(token != NO_ID for token in forced)
        self._step(batch, new, first_step, exploration, torch.tensor(forced, device=device) if steered else None)

    def _forward(self, inputs: Tensor, positions: Tensor, plan: AttentionPlan) -> Tensor:
        """Runs the body; [B, T, d] -> hidden [B, T, d]."""
        output = self.lm.base_model(inputs_embeds=inputs, position_ids=positions, use_cache=False, plan=plan)
        return output.last_hidden_state

    def _step(
        self,
        batch: BatchState,
        at: slice,
        hidden: Tensor,
        exploration: BoundExploration,
        forced: Tensor | None = None,
    ) -> None:
        """Decides the next token of the rows ``at`` from hidden [R, d] and records it; ``forced`` is `Steering`'s.

        Copies, since compiled code is guarded on a view being shorter than its base.
        """
        strategy, embed = exploration.strategy, self.lm.get_input_embeddings()
        context = StepContext(
            keys=batch.keys[at].clone(),
            positions=batch.prompt_length[at] + batch.emitted[at],
            embedding=embed.weight if strategy.reads_embedding else embed.weight[:0],
            ended=batch.ended[at].clone(),
            end_ids=batch.end_ids,
            tables=exploration.tables,
            state=batch.state[at].clone(),
            progress=exploration.progress,
            hidden=hidden.clone() if strategy.reads_hidden else None,
        )
        explore = None if batch.explore is None else batch.explore[at].clone()
        logits = output_logits(self.lm, hidden)
        temperature, steering = batch.sampling.temperature, batch.steering(at, forced)
        run: Callable[..., tuple[Step, Tensor]] = partial(decide, strategy)
        if self.compile and len(logits) > 1:
            run = compiled(decide, strategy, temperature == 1.0, explore is None, steering is None, forced is None)
        with exact_calls(self.lm):
            step, log_probs = run(logits, temperature, context, explore, steering)
        if self.exact and strategy.scores_tokens:
            log_probs = _exact_log_probs(logits, step, temperature)
        inputs = embed(step.token)
        if strategy.mixes:
            with exact_calls(self.lm):
                vectors = strategy.inputs(embed, step, context, exploration.parameters)
            inputs = torch.where(step.mixed[:, None], vectors, inputs)
        recorded = batch.distributions is not None
        distributions = distributions_of(tempered(logits, temperature), step.support) if recorded else None
        batch.record(at, step, log_probs, inputs, distributions)


def _exact_log_probs(logits: Tensor, step: Step, temperature: float) -> Tensor:
    """Returns those of a step's tokens as an exact trainer computes them, each on its support; float32 [R]."""
    log_probs, _, _ = exact_token_scores(logits, step.token, temperature)
    if step.support is None:
        return log_probs
    on_sets, _, _ = exact_token_scores(*on_support(logits, step.token, step.support), temperature)
    return torch.where((step.support == NO_ID).all(-1), log_probs, on_sets)
