"""Everything that is touched of vLLM's private parts, for which it has no door; the tests name each that moves.

- ``vllm.v1.core.kv_cache_utils.generate_block_hash_extra_keys`` and its name in ``block_pool`` (replaced), and of the
  requests that it is given ``sampling_params``, ``num_prompt_tokens`` and ``request_id``
- ``vllm._custom_ops._supports_onednn`` (replaced while a model is loaded on a CPU)
- of ``LLM.llm_engine``: ``engine_core`` and its ``shutdown``, ``resources.engine_manager.processes``,
  ``utility_results`` and ``outputs_queue``, of one in this process ``engine_core.scheduler``
- ``vllm.device_allocator.cumem``: of ``CuMemAllocator`` ``get_current_usage`` and ``sleep``, and ``unmap_and_release``
- ``vllm.model_executor.layers.quantization.online.base`` (imported)
- ``vllm.envs.disable_envs_cache``
- ``vllm.utils.torch_utils.get_accelerator_view_from_cpu_tensor``
- the loggers ``vllm.renderers.base`` and ``vllm.config.scheduler``
- of a worker: ``model_runner``, of a V2 runner ``block_tables.compute_slot_mappings``, ``cudagraph_manager.graphs`` and
  its ``run_fullgraph``, and if that is a V1 runner ``_model_forward`` and ``_sample`` (wrapped),
  ``input_batch.req_ids``, ``input_batch.num_reqs``, ``requests``, ``query_start_loc`` and ``discard_request_mask``

- ``vllm.v1.worker.gpu.attn_utils.build_slot_mappings_by_layer``
- ``vllm.v1.attention.backends.flash_attn.FlashAttentionMetadataBuilder`` and its ``max_num_splits`` (replaced),
  ``num_heads_kv`` and ``attention_config``

`cuda_ipc` overrides two methods of vLLM's sender beside: ``_all_gather_and_merge_handles`` and ``_post_send_sync``.
`burst_scheduler` derives from vLLM's scheduler: it overrides ``_update_after_schedule``, and uses ``running``,
``requests``, ``num_lookahead_tokens``, ``max_num_running_reqs``, ``current_step``, ``kv_cache_config``, the block pool,
and of a request ``num_computed_tokens``, ``num_output_placeholders`` and ``next_decode_eligible_step``.
"""

import ctypes
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ngrpo.rollout.vllm.settings import CONFIG_KEY


def key_cached_blocks(own_key: Callable[[Any, int, int], str | None]) -> None:
    """Adds a key of ours to the hash of every cached block. Safe to call again.

    The official ``cache_salt`` begins at a request's first block, and would share no prompts.

    Args:
        own_key: takes a request, the first position of a block and the one after its last, and returns what the block
            depends on beside its tokens; None for nothing.
    """
    from vllm.v1.core import block_pool, kv_cache_utils

    extra_keys = kv_cache_utils.generate_block_hash_extra_keys
    if getattr(extra_keys, "ngrpo", False):
        return

    def keys_with_ours(request: Any, start: int, end: int, start_mm: int) -> tuple[tuple[Any, ...] | None, int]:
        keys, next_mm = extra_keys(request, start, end, start_mm)
        own = own_key(request, start, end)
        return (keys if own is None else (*(keys or ()), (CONFIG_KEY, own))), next_mm

    keys_with_ours.ngrpo = True  # type: ignore[attr-defined]
    kv_cache_utils.generate_block_hash_extra_keys = keys_with_ours
    block_pool.generate_block_hash_extra_keys = keys_with_ours


@contextmanager
def weights_stay_loadable() -> Iterator[None]:
    """On a CPU, keeps vLLM from repacking the weights that it loads, which no later transfer could overwrite."""
    import vllm._custom_ops as ops
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        yield
        return
    repacks = ops._supports_onednn
    ops._supports_onednn = False
    try:
        yield
    finally:
        ops._supports_onednn = repacks


def view_of_host_memory(pinned: Tensor) -> Tensor:
    """Returns the GPU's view of a tensor in pinned host memory."""
    from vllm.utils.torch_utils import get_accelerator_view_from_cpu_tensor

    view: Tensor = get_accelerator_view_from_cpu_tensor(pinned)
    return view


def silence_missing_tokenizer() -> None:
    """Keeps vLLM from logging a traceback about the tokenizer that our engines do not load. Safe to call again.

    By a filter: vLLM configures its loggers again when an engine starts, and takes back any level.
    """
    logging.getLogger("vllm.renderers.base").addFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def silence_custom_scheduler() -> None:
    """Keeps vLLM from warning that our scheduler is not its own. Safe to call again."""
    logging.getLogger("vllm.config.scheduler").addFilter(_is_not_of_custom_schedulers)


def _is_not_of_custom_schedulers(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Using custom scheduler class")


def read_environment_anew() -> None:
    """Has vLLM read the environment as it is now; what is set in it from now on counts as well.

    An engine that starts in a process makes vLLM keep all variables as they are then, and only one that ends there in
    order undoes that. A later engine would take over whether to have a process of its own, where its sockets lie, and
    which GPUs it sees.
    """
    from vllm.envs import disable_envs_cache

    disable_envs_cache()


def end_engine(llm: Any) -> None:
    """Ends an engine, its processes included; ``vllm.LLM`` does so only when it is collected."""
    llm.llm_engine.engine_core.shutdown()


def import_before_loading() -> None:
    """Imports the modules with tensors that vLLM would import first while it loads a model.

    Their constants would lie on the GPU in memory that a sleep takes away and that no end of the engine gives back, and
    vLLM starts no second engine in a process while such memory is held.
    """
    import_module("vllm.model_executor.layers.quantization.online.base")


def sleeping_memory() -> int:
    """Returns the bytes on the GPU, mapped or asleep, that engines of this process hold in memory that can sleep."""
    if not torch.cuda.is_available():
        return 0
    from vllm.device_allocator.cumem import CuMemAllocator

    held: int = CuMemAllocator.get_instance().get_current_usage()
    return held


@contextmanager
def freeing_what_sleeps() -> Iterator[None]:
    """Lets an engine of this process be freed inside, whose memory sleeps, or of which a part woke before it failed.

    vLLM's allocator unmaps what it frees, also what a sleep has unmapped already. It keeps the driver's refusal as an
    error until Python asks, and with it frees nothing further and allocates nothing. So everything sleeps first, and
    the error is asked for afterwards.
    """
    from vllm.device_allocator import cumem

    cumem.CuMemAllocator.get_instance().sleep(())
    yield
    none = ctypes.c_ulonglong(0)
    with suppress(RuntimeError):
        cumem.unmap_and_release((torch.cuda.current_device(), 0, 0, ctypes.addressof(none)))


def scheduler_in_process(llm: Any) -> Any:
    """Returns the scheduler of an engine that runs in this process."""
    return llm.llm_engine.engine_core.engine_core.scheduler


def engine_processes(llm: Any) -> list[BaseProcess]:
    """Returns the processes of an engine that runs in its own."""
    return list(llm.llm_engine.engine_core.resources.engine_manager.processes)


def fail_waiting_calls(llm: Any, error: Exception) -> None:
    """Raises ``error`` in the calls that wait for an answer of the engine's process."""
    client = llm.llm_engine.engine_core
    for future in list(client.utility_results.values()):
        if not future.done():
            future.set_exception(error)
    if client.outputs_queue.empty():
        client.outputs_queue.put_nowait(error)


class DecodeRunner:
    """What bursts use of a V2 runner.

    Args:
        worker: whose runner it is.
    """

    def __init__(self, worker: Any) -> None:
        runner = worker.model_runner
        self._tables, self._manager = runner.block_tables, runner.cudagraph_manager
        self._graphs: dict[tuple[int, int], Any] = {}
        for described in () if self._manager is None else self._manager.graphs:
            plain = described.num_active_loras == 0 and getattr(described, "num_ubatches", 1) == 1
            if plain and described.uniform_token_count in (1, None):
                size = (described.num_tokens, described.num_reqs)
                if size not in self._graphs or described.uniform_token_count == 1:
                    self._graphs[size] = described

    def full_graph(self, batch: Any) -> Callable[[], Tensor] | None:
        """Returns the replay of the graph that ran a batch of one token a row; it returns hidden states [T, d]."""
        described = self._graphs.get((batch.num_tokens_after_padding, batch.num_reqs_after_padding))
        return None if described is None else partial(self._manager.run_fullgraph, described)

    def map_slots(self, states: Tensor, batch: Any) -> None:
        """Writes into the slot mapping where the rows' positions stand in the cache.

        Args:
            states: index of each row's request; int64 [R].
            batch: whose positions they are.
        """
        self._tables.compute_slot_mappings(
            states, batch.query_start_loc, batch.positions, num_tokens_padded=batch.num_tokens_after_padding
        )


def slots_by_layer(slot_mappings: Tensor, kv_cache_config: Any) -> dict[str, Tensor]:
    """Returns each layer's slot mapping, as a forward context takes them."""
    from vllm.v1.worker.gpu.attn_utils import build_slot_mappings_by_layer

    made: dict[str, Tensor] = build_slot_mappings_by_layer(slot_mappings, kv_cache_config)
    return made


_TOKENS_A_TILE = 5
"""Tokens of the longest context for each tile of attention, up to which no context need be split (132 multiprocessors;
measured with 16 to 1,024 tiles and contexts of 1,024 to 16,384 tokens, docs/benchmarks/attention_splits_h200.json)."""


def bound_splits(attention_groups: Sequence[Sequence[Any]], rows: int, longest: int) -> None:
    """Keeps FlashAttention 3 from splitting contexts in steps whose rows occupy a GPU by themselves.

    vLLM captures decode steps for contexts in up to 32 parts. Where no context is split, a second kernel that would add
    the parts up starts in every layer all the same, which is 3 % of the time of a step of 256 rows. One context that is
    much longer than the others has to be split, however, unless it is short or the rows are many. What is captured for
    a number of rows must be what is prepared for it later, so this depends on nothing but sizes.

    Args:
        attention_groups: vLLM's, whose metadata is prepared next.
        rows: of the batch, those that pad it for a graph included.
        longest: most tokens in a context.
    """
    from vllm.v1.attention.backends.flash_attn import FlashAttentionMetadataBuilder

    for groups in attention_groups:
        for group in groups:
            builder = group.get_metadata_builder()
            if type(builder) is FlashAttentionMetadataBuilder and builder.max_num_splits > 0:
                most = builder.attention_config.flash_attn_max_num_splits_for_cuda_graph
                tiles = rows * builder.num_heads_kv
                builder.max_num_splits = 1 if longest <= _TOKENS_A_TILE * tiles else most


class RunnerV1:
    """What is read and wrapped of vLLM's V1 runner, which only the CPU build still needs.

    Args:
        worker: whose runner it is; other runners of the process are not changed.
    """

    def __init__(self, worker: Any) -> None:
        self._runner: Any = worker.model_runner
        self.forward: Callable[..., Any] = self._runner._model_forward
        self.sample: Callable[..., Any] = self._runner._sample

    def wrap(self, forward: Callable[..., Any], sample: Callable[..., Any]) -> None:
        """Makes the runner call these instead of its own."""
        self._runner._model_forward = forward
        self._runner._sample = sample

    def rows(self) -> dict[str, Any]:
        """Returns the parameters of the batch's requests by their ids, row by row; rows change from step to step."""
        batch = self._runner.input_batch
        return {i: self._runner.requests[i].sampling_params for i in batch.req_ids[: batch.num_reqs]}

    def starts(self) -> Tensor:
        """Returns where each row's scheduled tokens start, and where the last one's end; int64 [R + 1]."""
        rows = self._runner.input_batch.num_reqs
        return torch.from_numpy(self._runner.query_start_loc.np[: rows + 1].astype(np.int64))

    def unfinished(self, rows: int) -> Tensor:
        """Says which rows have more to prefill, so that what is sampled for them is dropped; bool [R]."""
        return torch.from_numpy(self._runner.discard_request_mask.np[:rows].copy())
