"""The vLLM rollout engine."""

import gc
import logging
import multiprocessing
import os
import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch import Tensor

from ngrpo.distributed.parent_watch import ending_children
from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.exploration.runtime.strategy_errors import StrategyError
from ngrpo.modeling.loading import DTYPES, ModelSource
from ngrpo.rollout.engine import NOT_STARTED, Report, RolloutStream, ServingStream
from ngrpo.rollout.records.session import CollectedRecords, SessionSpec
from ngrpo.rollout.request_limits import check_requests, check_sampling
from ngrpo.rollout.served_dtype import AUTO, served_dtype
from ngrpo.rollout.vllm.device import visible_to_children
from ngrpo.rollout.vllm.left_memory import EngineMemory
from ngrpo.rollout.vllm.options import check_options, scheduler_argument
from ngrpo.rollout.vllm.private import (
    end_engine,
    freeing_what_sleeps,
    read_environment_anew,
    silence_missing_tokenizer,
    sleeping_memory,
)
from ngrpo.rollout.vllm.process_watch import ProcessWatch
from ngrpo.rollout.vllm.request_loop import RequestLoop
from ngrpo.rollout.vllm.rollout_stream import VllmStream, slots_for
from ngrpo.rollout.vllm.settings import MixingSettings, loading_arguments
from ngrpo.rollout.vllm.socket_folder import SocketFolder
from ngrpo.rollout.vllm.versions import Standing, check_version, installed_version, newer_than_tested
from ngrpo.rollout.vllm.weight_senders import choose_sender
from ngrpo.rollout.vllm.weight_transfer import WeightTransfer
from ngrpo.types.rollouts import Request, Rollout, Sampling

log = logging.getLogger(__name__)

_BURST = 32
_STREAMS = 16
_END_S = 10.0


class VllmEngine:
    """Runs strategies inside vLLM: mixtures in the compiled forward, records and log-probs on the device.

    It runs in this process, which gets weights by reference, or in processes of its own, which get them by CUDA IPC
    (shared memory on a CPU): one a GPU under tensor parallelism, one with ``own_process``.

    Args:
        model: where the weights come from.
        exploration: the training strategy; bounds the width of mixtures and says how they enter the forward.
        max_prompt_tokens: longest prompt.
        max_new_tokens: longest response.
        max_batch_size: most rollouts running at once.
        dtype: of the served weights; "auto" is bfloat16 on a GPU and the model's own elsewhere.
        gpu_memory_utilization: fraction of the GPU's memory for weights and KV cache.
        tensor_parallel_size: GPUs that share the model.
        enforce_eager: no torch.compile and no CUDA graphs.
        own_process: run the engine beside this process; needed when there are several training processes.
        enable_sleep_mode: give weights and KV cache back between rollouts, on a GPU; else they stay beside the update.
        dense_record_gib: most host memory, in GiB, for the vectors that a dense strategy records in one call.
        check: compare it with PyTorch before it is used, unless this version has passed with these settings.
        burst: most decode steps a round of vLLM's scheduler; 1 for no bursts, None for 32.
        options: further arguments of ``vllm.LLM``.

    Attributes:
        most_streams: open at a time, each with records and a session of its own in the workers.
        wasted_tokens: computed in bursts for rows that had ended.
        cached_tokens: of prompts and prefixes, computed for another request and found in vLLM's prefix cache.

    Raises:
        SettingError: an option cannot be served.
    """

    def __init__(
        self,
        model: ModelSource,
        exploration: Exploration,
        max_prompt_tokens: int,
        max_new_tokens: int,
        max_batch_size: int = 256,
        dtype: str = AUTO,
        gpu_memory_utilization: float = 0.5,
        tensor_parallel_size: int = 1,
        enforce_eager: bool = False,
        own_process: bool = False,
        enable_sleep_mode: bool = True,
        dense_record_gib: float = 16.0,
        check: bool = True,
        burst: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")  # else six lines an iteration
        options = dict(options or {})
        check_options(options)
        self.model = model
        self.dense_record_gib = dense_record_gib
        self.checked_as = f"vLLM {installed_version()}" if check else ""
        self._own_process = own_process
        self._check = check
        self._in_process = tensor_parallel_size == 1 and not own_process
        # Inside a training process vLLM would take that process's group of ranks for its own.
        self.several_ranks = own_process and tensor_parallel_size == 1
        self.concurrent = not self._in_process
        self.tf32 = torch.cuda.is_available()  # its attention kernels do so
        self._sender = choose_sender(None if self._in_process else tensor_parallel_size)
        burst = _BURST if burst is None else burst
        settings = MixingSettings(exploration.width, not exploration.sums_rows, burst)
        self._arguments: dict[str, Any] = {
            "model": model.location,
            "dtype": _served_dtype(dtype, model),
            "max_model_len": max_prompt_tokens + max_new_tokens,
            "max_num_seqs": max_batch_size,
            "gpu_memory_utilization": gpu_memory_utilization,
            "tensor_parallel_size": tensor_parallel_size,
            "enforce_eager": enforce_eager,
            "enable_prefix_caching": True,
            "enable_sleep_mode": enable_sleep_mode and torch.cuda.is_available(),
            "skip_tokenizer_init": True,
            "trust_remote_code": model.trust_remote_code,
            "generation_config": "vllm",
            "seed": 0,
            "worker_cls": "ngrpo.rollout.vllm.worker.MixingWorker",
            **options,
            "additional_config": dict(options.get("additional_config") or {}) | settings.additional_config(),
            **loading_arguments(options),
            **scheduler_argument(burst, options),
            "weight_transfer_config": {"backend": self._sender.backend},
        }
        self.most_streams = _STREAMS
        self.wasted_tokens = self.cached_tokens = 0
        self._told_cached = 0
        self._sendable = False
        self._asleep = False
        self._process_watch: ProcessWatch | None = None
        self._sockets = SocketFolder()

    @cached_property
    def _embedding_dim(self) -> int:
        """Width of the model's embedding. A server asks with each request: reading config.json takes milliseconds."""
        width: int = self.model.config().hidden_size
        return width

    @property
    def dtype(self) -> torch.dtype:
        """Of the served weights."""
        return DTYPES[self._arguments["dtype"]]

    def check_installed(self) -> None:
        """Refuses a vLLM that is missing, too old, or newer and unchecked (see `InstalledEngine`)."""
        if check_version() is Standing.NEWER and not self._check:
            raise SettingError(
                f"rollout.engine.check=false leaves a vLLM unchecked, but {newer_than_tested()}; remove it, install a "
                "tested one, or set rollout=torch."
            )

    def start(self, device: torch.device) -> None:
        """Starts vLLM.

        Raises:
            RunError: mixtures cannot enter this model in vLLM, or not in this process.
        """
        if check_version() is Standing.NEWER:
            log.warning("%s; it is compared with PyTorch before it is used", newer_than_tested())
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(self._own_process))
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # this process has threads
        if device.type == "cpu":
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        from ngrpo.rollout.vllm import plugin

        plugin.install()
        read_environment_anew()
        from vllm import LLM
        from vllm.engine.arg_utils import EngineArgs

        if self._in_process and EngineArgs(**self._arguments).create_model_config().using_transformers_backend():
            raise RunError(
                f"rollout.engine.own_process=false cannot serve model.path={self.model.path}: vLLM runs such models by "
                "transformers, and changes the classes that the trainer's own copy has in this process; set "
                "rollout.engine.own_process=true."
            )
        if self._in_process and (left := sleeping_memory()):
            raise RunError(
                f"rollout.engine.own_process=false cannot start vLLM again: {left / 2**20:z.0f} MiB of the engine that "
                "failed were not given back, and vLLM serves one engine a process; set rollout.engine.own_process=true."
            )
        silence_missing_tokenizer()
        _free_cached_memory()
        own_gpu = visible_to_children(device) if self.several_ranks else nullcontext()
        with ending_children(), own_gpu, self._sockets.used():
            others = multiprocessing.active_children()
            self.llm = LLM(**self._arguments)
        self._processes = [one for one in multiprocessing.active_children() if one not in others]
        self._memory = EngineMemory(one.pid for one in self._processes if one.pid is not None)
        if self._own_process:
            self._process_watch = ProcessWatch(self.llm)
        stream = torch.cuda.current_stream(device) if self._in_process and device.type == "cuda" else None
        self._loop = RequestLoop(self.llm.llm_engine, partial(_on_stream, stream), pausing=self._own_process)
        self._transfer = WeightTransfer(self.llm, self._sender, self._loop.turn)
        if (refusal := self._call("ngrpo_attach")[0]) is not None:
            self.close()
            raise RunError(f"rollout=vllm cannot serve model.path={self.model.path}: {refusal}; set rollout=torch.")

    def embedding(self) -> Tensor:
        """Returns the served input embedding table, [V, d].

        Raises:
            RuntimeError: no whole set of weights is served.
        """
        self._require_weights()
        if self._in_process:
            return self._call("ngrpo_embedding")[0]
        return torch.cat([pickle.loads(shard) for shard in self._call("ngrpo_embedding_serialized")])

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        exploration: BoundExploration,
        report: Report | None = None,
        slots: int | None = None,
    ) -> list[Rollout]:
        """Makes one rollout a request, in their order (see `RolloutEngine`).

        Any number of threads may call this at once, with strategies and settings of their own. An engine in a process
        of its own starts when all requests are there; those that wait for slots join whatever step it is at then, so
        that the last bits of their log-probs may differ from one run to the next.

        Args:
            requests: what to make.
            sampling: settings of all.
            exploration: strategy of all.
            report: is told of each rollout that finishes.
            slots: most rollouts that have a record at once, running ones and those that wait to be collected; None for
                one a request as long as the records take less than 1 GiB, and else for what keeps the batch full.

        Raises:
            SettingError: a request is not as the engine can serve it.
            StrategyError: the strategy's own code failed in vLLM's workers.
            RuntimeError: no whole set of weights is served.
        """
        if not requests:
            return []
        explores, steered = all(r.explore for r in requests), any(r.steered for r in requests)
        with self._opened(sampling, exploration, len(requests), explores, steered, report, slots) as stream:
            stream.add(requests)
            while stream.wait():
                pass
            return stream.rollouts(range(len(requests)))

    def stream(
        self, sampling: Sampling, exploration: BoundExploration, at_once: int, report: Report | None = None
    ) -> AbstractContextManager[RolloutStream]:
        """Opens a stream of requests that all explore, and ask for no tokens (see `StreamingEngine`)."""
        return self._opened(sampling, exploration, at_once, True, False, report, None)

    def serving_stream(
        self, sampling: Sampling, exploration: BoundExploration, plain: bool, steered: bool = False
    ) -> AbstractContextManager[ServingStream]:
        """Opens a stream for requests of many askers (see `ServingEngine`); as many at once as records have room."""
        most: int = self._arguments["max_num_seqs"] + self._arguments["max_num_seqs"] // 4
        while most > 1 and not self._fits(exploration.strategy, most, sampling.max_new_tokens):
            most //= 2
        return self._opened(sampling, exploration, most, not plain, steered, None, None)

    def _fits(self, strategy: Exploration, requests: int, max_new_tokens: int) -> bool:
        try:
            self.check_load(strategy, requests, max_new_tokens)
        except SettingError:
            return False
        return True

    @contextmanager
    def _opened(
        self,
        sampling: Sampling,
        exploration: BoundExploration,
        requests: int,
        explores: bool,
        steered: bool,
        report: Report | None,
        slots: int | None,
    ) -> Iterator[VllmStream]:
        """Opens a session for about so many requests at once."""
        self._require_weights()
        strategy, budget, model = exploration.strategy, sampling.max_new_tokens, self.llm.model_config
        check_sampling(sampling, model.get_vocab_size(), model.max_model_len)  # before there are records of this length
        self.check_load(strategy, requests, budget)
        embedding_shape = model.get_vocab_size(), self._embedding_dim
        room = slots_for(requests, strategy, budget, self._arguments["max_num_seqs"], sampling.distributions)
        slots = min(requests, slots or room)
        spec = SessionSpec(
            strategy=strategy,
            tables={name: table.cpu() for name, table in exploration.tables.items()},
            parameters={name: value.cpu() for name, value in exploration.parameters.items()},
            end_ids=exploration.end_ids,
            temperature=sampling.temperature,
            max_new_tokens=budget,
            slots=slots,
            plain_requests=not explores,
            stop_ids=sampling.stop_ids,
            progress=exploration.progress.cpu(),
            steered=steered,
            distributions=sampling.distributions,
        )

        def check(given: Sequence[Request]) -> None:
            check_requests(given, sampling, strategy, embedding_shape, model.max_model_len)
            if explores and not all(request.explore for request in given):
                raise ValueError("the stream was opened for requests that explore")
            if not steered and any(request.steered for request in given):
                raise ValueError("the stream was opened for requests that ask for no tokens")

        with self._loop.call("ngrpo_begin", "ngrpo_end", pickle.dumps(spec)) as call:
            self._require_weights()  # a transfer that the call waited for may have failed
            stream = VllmStream(self._loop, call, sampling, strategy, slots, check, self._collect, report)
            try:
                yield stream
            finally:
                self.cached_tokens += stream.cached_tokens

    def figures(self) -> dict[str, float]:
        """Returns the cached tokens since this was asked last (see `MeasuredEngine`)."""
        before, self._told_cached = self._told_cached, self.cached_tokens
        return {"rollout/cached_tokens": float(self.cached_tokens - before)}

    def check_load(self, strategy: Exploration, requests: int, max_new_tokens: int) -> None:
        """Refuses a call whose dense records would need more host memory than they may (see `RolloutEngine`)."""
        if not strategy.dense:
            return
        dim, itemsize = self._embedding_dim, self.dtype.itemsize
        gib = requests * max_new_tokens * dim * itemsize / 2**30
        if gib > self.dense_record_gib:
            raise SettingError(
                f"rollout.engine.dense_record_gib={self.dense_record_gib} is less than the {gib:z.1f} GiB of vectors "
                f"of {requests} rollouts x {max_new_tokens} tokens x {dim} numbers of {itemsize} bytes; raise it, or "
                "lower algo.prompts_per_batch, rollout.group_size or rollout.max_new_tokens."
            )

    def _collect(self, session: int, slots: list[int], lengths: list[int]) -> CollectedRecords:
        if self._in_process:
            collected: CollectedRecords = self._call("ngrpo_collect", session, slots, lengths)[0]
        else:
            collected = pickle.loads(self._call("ngrpo_collect_serialized", session, slots, lengths)[0])
        self.wasted_tokens += collected.wasted
        if collected.failure is not None:
            raise StrategyError(collected.failure)
        return collected

    def sync_weights(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Loads new weights in buckets, checks that they are served, and drops cached prompts.

        The first time after this object was made, it is checked first that the model's own weights can be sent.

        Raises:
            RuntimeError: what is served is not what was sent.
            RunError: vLLM serves this model otherwise when its weights are sent again.
        """
        self._require_started()
        with self._loop.alone():
            if not self._sendable:
                self._send_loaded(self.model.load().named_parameters())
            self._transfer.send(tensors, self.dtype)
            self._drop_cached_prompts()

    def sync_loaded(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Takes the weights that `start` has loaded, and checks that nothing served changes (see `RolloutEngine`)."""
        self._require_started()
        with self._loop.alone():
            self._send_loaded(tensors)
            self._drop_cached_prompts()

    @property
    def weight_version(self) -> str:
        """Which weights are served (see `WeightTransfer.version`)."""
        self._require_started()
        return self._transfer.version

    def _require_weights(self) -> None:
        """Raises a RuntimeError where weights have gone with a sleep, or came only in part, or vLLM does not run."""
        self._require_started()
        if self._asleep:
            raise RuntimeError("a sleeping engine serves no weights; call wake and sync_weights first")
        self._transfer.require_whole()

    def _require_started(self) -> None:
        if "llm" not in vars(self):
            raise RuntimeError(NOT_STARTED)

    def _send_loaded(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        lossless = DTYPES[self.model.dtype] in (torch.float32, self.dtype)
        if lossless and not self._asleep:  # a sleep leaves nothing that could stay unchanged
            self._transfer.send_unchanged(tensors, self.dtype, self.model.path)
        else:
            self._transfer.send(tensors, self.dtype)
        self._sendable = True

    def _drop_cached_prompts(self) -> None:
        with self._loop.turn():
            if self._asleep:
                self.llm.wake_up(tags=["kv_cache"])
                self._asleep = False
            self.llm.reset_prefix_cache()

    def sleep(self) -> None:
        """Frees weights and KV cache on a GPU (sleep level 2); does nothing on a CPU and without ``enable_sleep_mode``.

        Before the first transfer it is checked that the model's own weights can be sent (see `sync_weights`):
        afterwards there are none to compare with.
        """
        if not self._arguments["enable_sleep_mode"]:
            return
        with self._loop.alone():
            if not self._sendable:
                self._send_loaded(self.model.load().named_parameters())
            with self._loop.turn():
                self.llm.sleep(level=2)
                self._asleep = True

    def wake(self) -> None:
        """Allocates the weights again; `sync_weights` fills them and allocates the KV cache."""
        if self._asleep:
            with self._loop.alone():
                _free_cached_memory()
                with self._loop.turn():
                    self.llm.wake_up(tags=["weights"])
                self._call("ngrpo_reset")

    def close(self) -> None:
        """Ends vLLM, its processes included."""
        llm = self.__dict__.pop("llm", None)
        self.__dict__.pop("_transfer", None)
        sleeps, self._asleep = self._asleep and self._in_process, False
        if self._process_watch is not None:
            self._process_watch.close()
            self._process_watch = None
        if llm is None:
            return
        self._loop.stop()
        with freeing_what_sleeps() if sleeps else nullcontext():
            try:
                end_engine(llm)
            except Exception as error:  # of an engine that is dead already
                log.debug("vLLM did not end in order: %s", error)
            _end(self._processes)
            self._sockets.clear()
            del llm
            gc.collect()
            self._memory.remove()  # last: what vLLM has in this process removes its own then
            _free_cached_memory()

    def _call(self, method: str, *args: Any) -> list[Any]:
        return self._loop.rpc(method, *args)


def _end(processes: Sequence[BaseProcess]) -> None:
    """Waits for processes that are to end, and kills those that take long: the next engine needs what they hold.

    vLLM waits itself, but not where the death of one of its workers has made it end the others.
    """
    until = time.monotonic() + _END_S
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


@contextmanager
def _on_stream(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """Puts a thread on the stream on which vLLM was started in this process; None for an engine elsewhere."""
    if stream is None:
        yield
    else:
        with torch.cuda.device(stream.device), torch.cuda.stream(stream):
            yield


def _free_cached_memory() -> None:
    """Gives back what this process's allocator keeps of its peak, which vLLM has an allocator of its own beside.

    After an update that is all that activations and gradients took.
    """
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _served_dtype(dtype: str, model: ModelSource) -> str:
    return served_dtype(dtype, "bfloat16" if torch.cuda.is_available() else model.dtype)
