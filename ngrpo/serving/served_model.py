"""The model that is served: an engine, its weights, and the strategies that are bound to them."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TypeVar

import torch
from torch import Tensor

from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.bound import BoundExploration, bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.embedding_scale import check_rows
from ngrpo.modeling.learned import load_learned
from ngrpo.modeling.loading import ModelSource
from ngrpo.remote.tensor_parts import version_of
from ngrpo.rollout.engine import RolloutEngine, ServingEngine
from ngrpo.rollout.recovery import EngineFailure, engine_failures
from ngrpo.rollout.request_limits import check_requests
from ngrpo.serving.engine_streams import EngineStreams, Opened
from ngrpo.serving.generation import Choice, Generation, Weights
from ngrpo.serving.refusals import Refusal, broken, busy, engine_failed, missing_tensors, older_weights
from ngrpo.serving.tensor_store import TensorStore

log = logging.getLogger(__name__)

T = TypeVar("T")

_MOST_BOUND = 32
"""Strategies whose tables are kept."""


@dataclass(frozen=True)
class Parameters:
    """What the weights of a model must be.

    Attributes:
        shapes: by transformers name; tied weights are there once.
        embedding: name of the input embedding.
    """

    shapes: Mapping[str, torch.Size]
    embedding: str


class ServedModel:
    """Makes rollouts for any number of callers, each with one set of weights.

    Args:
        engine: started, with weights.
        source: of the model.
        parameters: of the model.
        vocabulary: the tokenizer's.
        max_waiting: most rollouts that are asked for and not made.
        max_new_tokens: most response tokens.
        store: tensors that clients have sent.
        version: of the weights that the engine has.
        started_for: the strategy that the engine was made for.
    """

    def __init__(
        self,
        engine: RolloutEngine,
        source: ModelSource,
        parameters: Parameters,
        vocabulary: Vocabulary,
        max_waiting: int,
        max_new_tokens: int,
        store: TensorStore,
        version: str,
        started_for: Exploration,
    ) -> None:
        self.engine = engine
        self.source = source
        self.store = store
        self.failure: str | None = None
        self.weights = Weights(version, 0, time.time())
        self.embedding_shape = tuple(engine.embedding().shape)
        self.embedding_name = parameters.embedding
        self._shapes = parameters.shapes
        self._vocabulary = vocabulary
        self._max_waiting = max_waiting
        self._started_for = started_for
        self._waiting = 0
        self._counting = threading.Lock()
        self._bound: OrderedDict[tuple[Choice, str], BoundExploration] = OrderedDict()
        self._binding = threading.Lock()
        if not isinstance(engine, ServingEngine):
            raise SettingError(f"{type(engine).__name__} cannot serve requests that come one by one; set rollout=auto.")
        self._serving: ServingEngine = engine
        self._many = engine.most_streams > 1
        self._max_new_tokens = max_new_tokens
        self._streams = EngineStreams(self._opened, self._refusal, engine.most_streams)

    @property
    def waiting(self) -> int:
        """Rollouts that are asked for and not made."""
        return self._waiting

    @property
    def open_streams(self) -> int:
        """Streams of the engine that are open."""
        return self._streams.open

    def generate(self, work: Generation) -> Generation:
        """Has rollouts made; returns the work as it is made, whose ``done`` gets them.

        Raises:
            SettingError: the engine cannot serve a request.
            Refusal: too many are waiting, the engine has failed, or other weights are wanted.
        """
        self._check_whole()
        work.wanted.check(self.weights)
        self._check_strategy(work.choice.strategy)
        check_requests(work.requests, work.sampling, work.choice.strategy, self.embedding_shape)
        self.engine.check_load(work.choice.strategy, len(work.requests), work.sampling.max_new_tokens)
        count = len(work.requests)
        with self._counting:
            if self._waiting + count > self._max_waiting:
                raise busy(self._waiting, self._max_waiting)
            self._waiting += count
        work = work.with_room(self._max_new_tokens)
        work.done.add_done_callback(lambda _: self._finished(count))  # not of the work, which would never be freed
        self._streams.submit(work)
        return work

    def withdraw(self, work: Generation) -> None:
        """Makes nothing more of what nobody waits for."""
        self._streams.withdraw(work)

    def end(self, work: Generation, place: int) -> None:
        """Has one rollout of a watched work finish with the tokens that it has."""
        self._streams.end(work, place)

    def take_weights(self, names: Sequence[str], step: int) -> "Future[Weights]":
        """Has the engine take weights from the store, when no rollout is being made.

        Args:
            names: of the parts that hold them.
            step: their number.

        Raises:
            SettingError: they are not the model's.
            Refusal: parts are not in the store, the engine has failed, or others of this number are served, or of a
                larger one.
        """
        self._check_whole()
        version = version_of(names)
        tensors: dict[str, Tensor] = {}
        if version != self.weights.version:
            for part in self.store.get(names):
                tensors |= part
            self._check_shapes(tensors)

        def take() -> Weights:
            self._check_whole()
            served = self.weights
            if version == served.version:  # of another process of the same training
                self.weights = replace(served, step=max(step, served.step))
            elif step <= served.step:
                raise older_weights(step, served.step)
            elif not tensors:  # others have come in between
                raise missing_tensors(list(names))
            else:
                self._take(tensors, Weights(version, step, time.time()))
            self.store.drop(names)
            return self.weights

        return self._streams.alone(take)

    def embedding(self) -> "Future[Tensor]":
        """Returns the served input embedding table, [V, d], on the CPU."""
        self._check_whole()
        return self._streams.alone(lambda: self.engine.embedding().detach().cpu())

    def bind(self, choice: Choice) -> BoundExploration:
        """Binds a strategy to the served weights, or to the tables that a client has sent.

        Raises:
            SettingError: what the client has sent does not fit the strategy.
            Refusal: it is not in the store.
        """
        key = replace(choice, progress=0), self.weights.version
        with self._binding:
            if key not in self._bound:
                self._bound[key] = self._newly_bound(choice)
                while len(self._bound) > _MOST_BOUND:
                    self._bound.popitem(last=False)
            self._bound.move_to_end(key)
            return self._bound[key].after(choice.progress)

    def close(self) -> None:
        """Ends the engine when what was begun is done."""
        self._streams.close()
        self.engine.close()

    def _check_strategy(self, strategy: Exploration) -> None:
        """No mixture has more ids than there are, or than the engine was made for; no id is named that does not exist.

        vLLM's buffers are of the strategy that it was started with; the torch engine's are of each call's.
        """
        first = self._started_for
        if self._many and first.sums_rows and not (strategy.sums_rows and strategy.width <= first.width):
            raise SettingError(
                f"exploration={strategy} mixes more, or otherwise, than {first}, for which the engine was started; "
                "start the server with one that mixes as much."
            )
        rows = self.embedding_shape[0]
        unknown = [one for one in getattr(strategy, "excluded_ids", ()) if not 0 <= one < rows]
        if strategy.width > rows or unknown:
            raise SettingError(f"exploration={strategy} names more than the {rows} tokens of the model; ask for less.")

    def _newly_bound(self, choice: Choice) -> BoundExploration:
        strategy, table = choice.strategy, self.engine.embedding()
        check_rows(self.source, strategy)
        tables = None if choice.tables is None else self._tables(choice.tables)
        if choice.parameters is None:
            learned = load_learned(self.source, strategy)
        else:
            learned = self._parameters(choice.parameters, strategy)
        try:
            return bind(strategy, table, self._vocabulary, learned, tables)
        except (SettingError, RunError):
            raise
        except Exception as error:
            if tables is None and choice.parameters is None:
                raise
            raise SettingError(
                f"the tables or parameters that were sent do not fit {type(strategy).__name__} "
                f"({type(error).__name__}); send those of the same strategy and model."
            ) from error

    def _tables(self, name: str) -> dict[str, Tensor]:
        (tables,) = self.store.get([name])
        rows = self.embedding_shape[0]
        for key, table in tables.items():
            whole = not (table.is_floating_point() or table.is_complex())
            if whole and table.numel() and not 0 <= int(table.min()) <= int(table.max()) < rows:
                raise SettingError(f"the table {key[:40]} names rows outside of the model's {rows}; send another.")
        return tables

    def _parameters(self, name: str, strategy: Exploration) -> dict[str, Tensor]:
        (sent,) = self.store.get([name])
        initial = strategy.initial_parameters(self.embedding_shape[1])
        if {key: (t.shape, t.dtype) for key, t in sent.items()} != {k: (t.shape, t.dtype) for k, t in initial.items()}:
            raise SettingError(
                f"the parameters that were sent are not those of {type(strategy).__name__}; send what it has learned."
            )
        return sent

    def _check_shapes(self, tensors: Mapping[str, Tensor]) -> None:
        missing, unknown = self._shapes.keys() - tensors.keys(), tensors.keys() - self._shapes.keys()
        if missing or unknown:
            which, said = (missing, "lack") if missing else (unknown, "have the unknown")
            raise SettingError(
                f"the weights {said} {sorted(which)[0][:80]}; send all those of the model, and no others."
            )
        for name, tensor in tensors.items():
            if tensor.shape != self._shapes[name] or not tensor.is_floating_point():
                raise SettingError(
                    f"the weights have {name} as {tensor.dtype} {list(tensor.shape)}, and the model has "
                    f"{list(self._shapes[name])}; send those of the same model."
                )

    def _take(self, tensors: Mapping[str, Tensor], weights: Weights) -> None:
        try:
            with engine_failures():
                self.engine.sync_weights(tensors.items())
        except EngineFailure as failure:
            raise self._fail(failure) from failure
        self.weights = weights
        with self._binding:
            self._bound.clear()
        log.info("weights %s of step %d are served", weights.version, weights.step)

    @contextmanager
    def _opened(self, first: Generation) -> Iterator[Opened]:
        """Opens a stream for a work and those that join it."""
        self._check_whole()
        bound = self.bind(first.choice)
        opened = self._serving.serving_stream(first.sampling, bound, first.plain, first.steered)
        with engine_failures(bound.strategy), opened as stream:
            yield Opened(stream, self.weights)

    def _refusal(self, error: BaseException, work: Generation) -> BaseException:
        """Returns what those who wait are told of an error."""
        if isinstance(error, EngineFailure):
            return self._fail(error) if self._many else engine_failed(str(error))
        if isinstance(error, SettingError | RunError | Refusal):
            return error
        name = type(work.choice.strategy).__name__
        log.error("%s failed", name, exc_info=error)
        return Refusal(
            HTTPStatus.INTERNAL_SERVER_ERROR, f"{name} failed ({type(error).__name__}); the server's log says where."
        )

    def _fail(self, failure: EngineFailure) -> Refusal:
        self.failure = self.failure or str(failure)
        log.error("the rollout engine failed (%s); start the server again", self.failure)
        return broken(self.failure)

    def _check_whole(self) -> None:
        if self.failure is not None:
            raise broken(self.failure)

    def _finished(self, requests: int) -> None:
        with self._counting:
            self._waiting -= requests
