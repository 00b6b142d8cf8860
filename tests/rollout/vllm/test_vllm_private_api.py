"""Fails by name where vLLM moves something that the adapters use: a door of its own, or one of its private parts."""

import ast
import inspect
import json
import logging.config
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from places import ROOT

import ngrpo.rollout.vllm as package

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm

FOLDER = Path(package.__file__).parent
PRIVATE = FOLDER / "private.py"
SCHEDULER = FOLDER / "burst_scheduler.py"
DOORS = {
    "vllm",
    "vllm.config",
    "vllm.config.load",
    "vllm.distributed",
    "vllm.distributed.weight_transfer",
    "vllm.distributed.weight_transfer.base",
    "vllm.distributed.weight_transfer.ipc_engine",
    "vllm.engine.arg_utils",
    "vllm.forward_context",
    "vllm.inputs",
    "vllm.model_executor.layers.vocab_parallel_embedding",
    "vllm.model_executor.model_loader",
    "vllm.platforms",
    "vllm.sampling_params",
    "vllm.v1.outputs",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.worker.gpu.input_batch",
    "vllm.v1.worker.gpu.model_states.default",
    "vllm.v1.worker.gpu.sample.output",
    "vllm.v1.worker.gpu_worker",
    "vllm.v1.worker.worker_base",
}
"""Modules for callers, and for who writes models, loaders, model states, samplers and workers; else `private` imports
it."""


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def has(condition: bool, name: str) -> None:
    """Fails with the name and the place that must follow it."""
    assert condition, f"vLLM has moved {name}, which {PRIVATE.relative_to(FOLDER.parents[2])} uses"


def test_models_are_loaded_through_registered_loaders():
    from vllm.config import LoadConfig
    from vllm.model_executor.model_loader import BaseModelLoader, DefaultModelLoader, DummyModelLoader, get_model_loader

    from ngrpo.rollout.vllm import loader, plugin, settings

    plugin.install()
    abstract = BaseModelLoader.__abstractmethods__
    assert abstract == {"download_model", "load_weights"}
    assert parameters(BaseModelLoader.load_model) == parameters(loader.MixingLoader.load_model)
    for options, theirs in (
        ({}, DefaultModelLoader),
        ({"load_format": "safetensors", "model_loader_extra_config": {"num_threads": 2}}, DefaultModelLoader),
        ({"load_format": "dummy"}, DummyModelLoader),
    ):
        made = get_model_loader(LoadConfig(**settings.loading_arguments(options)))
        assert type(made) is loader.MixingLoader
        assert type(made._loader) is theirs
        assert made._loader.load_config.load_format == options.get("load_format", "auto")
        assert made._loader.load_config.model_loader_extra_config == options.get("model_loader_extra_config", {})


def test_a_model_may_bring_its_own_model_state():
    source = inspect.getsource(pytest.importorskip("vllm.v1.worker.gpu.model_states"))
    assert 'hasattr(model, "get_model_state_cls")' in source
    assert "model.get_model_state_cls()" in source


def test_memory_that_can_sleep_is_counted():
    from vllm.device_allocator.cumem import CuMemAllocator

    assert parameters(CuMemAllocator.get_current_usage) == ["self"]
    assert callable(CuMemAllocator.get_instance)


def test_memory_that_sleeps_is_freed_as_it_is():
    from vllm.device_allocator.cumem import CuMemAllocator, unmap_and_release

    assert parameters(CuMemAllocator.sleep) == ["self", "offload_tags"]
    assert parameters(unmap_and_release) == ["allocation_handle"]


def test_workers_are_called_as_they_are():
    from vllm import LLM, LLMEngine
    from vllm.v1.worker.worker_base import WorkerBase

    assert parameters(WorkerBase.get_model) == ["self"]
    assert {"level", "mode"} <= set(parameters(LLM.sleep))
    assert "tags" in parameters(LLM.wake_up)
    assert '"scheduling"' in inspect.getsource(LLM.wake_up)
    assert {"request_id", "prompt", "params"} <= set(parameters(LLMEngine.add_request))
    assert {"step", "abort_request", "collective_rpc", "sleep", "wake_up"} <= set(vars(LLMEngine))


def test_model_runner_v2_has_the_hooks():
    from vllm.v1.core.sched.output import NewRequestData
    from vllm.v1.worker.gpu import input_batch, model_runner
    from vllm.v1.worker.gpu.model_states.default import DefaultModelState
    from vllm.v1.worker.gpu.sample.output import SamplerOutput
    from vllm.v1.worker.gpu.sample.sampler import Sampler

    assert parameters(DefaultModelState.__init__) == ["self", "vllm_config", "model", "encoder_cache", "device"]
    assert parameters(DefaultModelState.add_request) == ["self", "req_index", "new_req_data"]
    assert {"sampling_params", "prefill_token_ids"} <= set(NewRequestData.__dataclass_fields__)
    assert parameters(DefaultModelState.apply_staged_writes) == ["self"]
    assert parameters(DefaultModelState.preprocess_state)[:2] == ["self", "input_batch"]
    assert parameters(DefaultModelState.custom_sampler) == ["self", "sampler"]
    assert parameters(Sampler.__call__)[:3] == ["self", "logits", "input_batch"]
    used = {"num_reqs", "num_tokens", "idx_mapping", "query_start_loc", "positions", "seq_lens"}
    assert used <= set(input_batch.InputBatch.__dataclass_fields__)
    assert set(SamplerOutput.__dataclass_fields__) >= {
        "sampled_token_ids",
        "logprobs_tensors",
        "num_nans",
        "num_sampled",
        "num_rejected",
    }
    called = inspect.getsource(model_runner.GPUModelRunner)
    for hook in ("add_request", "apply_staged_writes", "preprocess_state", "custom_sampler"):
        assert f"self.model_state.{hook}(" in called
    sampling = inspect.getsource(model_runner.GPUModelRunner.sample)
    assert sampling.index("self.model.compute_logits(sample_hidden_states)") < sampling.index("self.sampler(logits")


def test_the_input_embedding_has_what_the_mixing_one_reads():
    from vllm.model_executor.layers import vocab_parallel_embedding as layers

    indices = set(layers.VocabParallelEmbeddingShardIndices.__dataclass_fields__) | set(
        vars(layers.VocabParallelEmbeddingShardIndices)
    )
    assert {
        "org_vocab_start_index",
        "org_vocab_end_index",
        "num_org_vocab_padding",
        "added_vocab_start_index",
        "added_vocab_end_index",
        "num_org_elements",
    } <= indices
    assert len(parameters(layers.get_masked_input_and_mask)) == 6
    assert {"self.tp_size", "self.shard_indices"} <= set(inspect.getsource(layers.VocabParallelEmbedding).split())
    known = {"self", "num_embeddings", "embedding_dim", "params_dtype", "org_num_embeddings", "padding_size"}
    known |= {"quant_config", "prefix", "disable_tp", "quant_method", "parallel_group", "reduce_results"}
    assert set(parameters(layers.VocabParallelEmbedding.__init__)) <= known


def test_block_hashes_are_made_through_the_names_that_are_replaced():
    from vllm.v1.core import block_pool, kv_cache_utils
    from vllm.v1.request import Request

    from ngrpo.rollout.vllm import prefix_cache

    prefix_cache.install()
    name = "generate_block_hash_extra_keys"
    keys = getattr(kv_cache_utils, name)
    assert keys.ngrpo
    assert getattr(block_pool, name) is keys
    prefix_cache.install()
    assert getattr(kv_cache_utils, name) is keys
    has(len(parameters(inspect.getclosurevars(keys).nonlocals["extra_keys"])) == 4, f"the parameters of {name}")
    hashing = []
    for function in vars(kv_cache_utils).values():
        # Hashes with other keys would not know which tokens were mixed.
        if inspect.isfunction(function) and "hash_block_tokens(" in inspect.getsource(function):
            hashing.append(function.__name__)
            named = function.__name__ in ("hash_block_tokens", "keys_with_ours")
            has(named or f"{name}(" in inspect.getsource(function), f"a hash made in {function.__name__}")
    assert len(hashing) > 1
    attributes = set(inspect.getsource(Request).replace(".", " ").split())
    for attribute in ("sampling_params", "request_id", "num_prompt_tokens"):
        has(attribute in attributes, f"Request.{attribute}")


def test_the_client_of_an_engine_process_has_what_is_read():
    from vllm.v1.engine import core_client, llm_engine

    client = inspect.getsource(core_client.SyncMPClient)
    for used in (
        "outputs = self.outputs_queue.get()",
        "if isinstance(outputs, Exception)",
        "self.utility_results[call_id] = future",
        "return future.result()",
    ):
        has(used in client, used)
    has("engine_manager" in core_client.BackgroundResources.__dataclass_fields__, "resources.engine_manager")
    has("self.processes" in inspect.getsource(core_client.CoreEngineProcManager), "engine_manager.processes")
    has("self.engine_core = " in inspect.getsource(llm_engine.LLMEngine), "LLMEngine.engine_core")
    for kind in (core_client.SyncMPClient, core_client.InprocClient):
        has(parameters(kind.shutdown)[:1] == ["self"], f"{kind.__name__}.shutdown")


def test_repacking_on_a_cpu_is_asked_of_the_name_that_is_replaced():
    import vllm._custom_ops as ops
    from vllm.model_executor.layers import utils
    from vllm.platforms import current_platform

    from ngrpo.rollout.vllm.private import weights_stay_loadable

    has("ops._supports_onednn" in inspect.getsource(utils.dispatch_cpu_unquantized_gemm), "ops._supports_onednn")
    before = ops._supports_onednn
    with weights_stay_loadable():
        assert ops._supports_onednn is (False if current_platform.is_cpu() else before)
    assert ops._supports_onednn is before


def test_the_logger_that_is_silenced_and_the_view_of_host_memory(caplog):
    from vllm.config import scheduler
    from vllm.renderers import base
    from vllm.utils import torch_utils

    from ngrpo.rollout.vllm.private import silence_custom_scheduler, silence_missing_tokenizer

    message = "Using custom scheduler class %s."
    has(message in inspect.getsource(scheduler), f"the message {message!r}")
    has(base.logger.name == "vllm.renderers.base", "the logger of vllm.renderers.base")
    for _ in range(2):
        silence_missing_tokenizer()
        silence_custom_scheduler()
    # As vLLM does when an engine starts.
    logging.config.dictConfig(
        {"version": 1, "disable_existing_loggers": False, "loggers": {"vllm": {"level": "WARNING"}}}
    )
    with caplog.at_level(logging.WARNING, logger="vllm"):
        base.logger.warning("Chat template warmup failed")
        base.logger.error("something else")
        logging.getLogger("vllm.config.scheduler").warning("Using custom scheduler class %s. This", "ours")
    assert "warmup" not in caplog.text
    assert "custom scheduler" not in caplog.text
    has(len(parameters(torch_utils.get_accelerator_view_from_cpu_tensor)) == 1, "get_accelerator_view_from_cpu_tensor")


def test_the_environment_that_vllm_keeps_is_read_anew(monkeypatch):
    from vllm import envs
    from vllm.v1.engine import core

    from ngrpo.rollout.vllm.private import read_environment_anew

    has(callable(getattr(envs, "disable_envs_cache", None)), "envs.disable_envs_cache")
    has("enable_envs_cache()" in inspect.getsource(core.EngineCore.__init__), "the end of an engine's start")
    read_environment_anew()
    monkeypatch.setenv("VLLM_RPC_BASE_PATH", "first")
    envs.enable_envs_cache()
    monkeypatch.setenv("VLLM_RPC_BASE_PATH", "second")
    assert envs.VLLM_RPC_BASE_PATH == "first"
    read_environment_anew()
    assert envs.VLLM_RPC_BASE_PATH == "second"


def test_the_v1_runner_has_what_is_wrapped_and_read():
    from vllm.v1.worker import gpu_worker
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    has({"input_ids", "positions"} <= set(parameters(GPUModelRunner._model_forward)), "_model_forward's parameters")
    has(parameters(GPUModelRunner._sample) == ["self", "logits", "spec_decode_metadata"], "_sample's parameters")
    source = inspect.getsource(GPUModelRunner)
    has("self.model_runner" in inspect.getsource(gpu_worker.Worker), "the worker's model_runner")
    for used in (
        "self._model_forward(",
        "positions=positions",
        "self.model.compute_logits(sample_hidden_states)",
        "self._sample(",
        "self.discard_request_mask.np",
        "self.query_start_loc.np",
        "self.input_batch.req_ids",
        "self.input_batch.num_reqs",
        "self.requests",
    ):
        has(used in source, used)


@pytest.mark.parametrize("path", sorted(set(FOLDER.glob("*.py")) - {PRIVATE, SCHEDULER}), ids=lambda path: path.stem)
def test_only_one_file_touches_private_parts(path: Path):
    inside = {"engine_core", "model_runner", "input_batch", "scheduler", "req_states", "requests"}
    for node in ast.walk(ast.parse(path.read_text())):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for module in modules:
            assert not module.startswith("vllm") or module in DOORS, f"{path.name} imports {module}"
        if isinstance(node, ast.Attribute):
            of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            private = node.attr.startswith("_") and not node.attr.startswith("__") and not of_self
            known = isinstance(node.value, ast.Call) or node.attr in ("_replace", "_make")
            assert not private or known, f"{path.name} reads .{node.attr}"
            assert node.attr not in inside, f"{path.name} reads .{node.attr}"


def test_the_scheduler_has_what_bursts_change():
    from vllm.config import SchedulerConfig
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.core.sched.scheduler import Scheduler

    assert "scheduler_cls" in SchedulerConfig.__dataclass_fields__
    has(not hasattr(SchedulerOutput, "__slots__"), "SchedulerOutput, which takes no further attribute")
    source, asynchronous = inspect.getsource(Scheduler), inspect.getsource(AsyncScheduler)
    for used in (
        "num_lookahead_tokens=self.num_lookahead_tokens",
        "self.current_step += 1",
        "if self.current_step < request.next_decode_eligible_step:",
        "self._update_after_schedule(scheduler_output)",
        "self.max_num_running_reqs",
        "self.kv_cache_config",
        "request.num_computed_tokens += num_scheduled_token",
    ):
        has(used in source, used)
    for used in ("request.num_output_placeholders += ", "request.num_output_placeholders -= len(new_token_ids)"):
        has(used in asynchronous, used)
    has(parameters(Scheduler.get_request_counts) == ["self"], "Scheduler.get_request_counts")
    has(callable(BlockPool.get_num_free_blocks), "BlockPool.get_num_free_blocks")


def test_model_runner_v2_has_what_the_steps_of_a_burst_use():
    from vllm.forward_context import set_forward_context
    from vllm.v1.worker.gpu import attn_utils, block_table, cudagraph_utils, input_batch, model_runner
    from vllm.v1.worker.gpu.model_states.default import DefaultModelState
    from vllm.v1.worker.utils import AttentionGroup

    given = ["self", "input_batch", "cudagraph_mode", "block_tables", "slot_mappings", "attn_groups", "kv_cache_config"]
    has(parameters(DefaultModelState.prepare_attn)[:7] == given, "the parameters of prepare_attn")
    taken = parameters(block_table.BlockTables.compute_slot_mappings)[:5]
    mapped = ["self", "idx_mapping", "query_start_loc", "positions", "num_tokens_padded"]
    has(taken == mapped, "the parameters of compute_slot_mappings")
    described = set(cudagraph_utils.BatchExecutionDescriptor.__dataclass_fields__)
    wanted = {"num_tokens", "num_reqs", "uniform_token_count", "num_active_loras"}
    has(wanted <= described, "BatchExecutionDescriptor")
    has("self.graphs" in inspect.getsource(cudagraph_utils.CudaGraphManager), "CudaGraphManager.graphs")
    has(parameters(cudagraph_utils.ModelCudaGraphManager.run_fullgraph) == ["self", "desc"], "run_fullgraph")
    for used in ("self.block_tables", "self.cudagraph_manager", "self.model_state.prepare_attn("):
        has(used in inspect.getsource(model_runner.GPUModelRunner), used)
    has("- num_rejected" in inspect.getsource(input_batch), "num_rejected, which may be negative here")
    has(hasattr(AttentionGroup, "supports_draft_decode_metadata_update"), "supports_draft_decode_metadata_update")
    has(parameters(AttentionGroup.update_draft_decode_metadata) == ["self", "attn_metadata"], "its update")
    has(len(parameters(attn_utils.build_slot_mappings_by_layer)) == 2, "build_slot_mappings_by_layer")
    assert {"cudagraph_runtime_mode", "slot_mapping"} <= set(parameters(set_forward_context))


def test_flash_attention_takes_the_bound_on_its_splits_from_its_builder():
    from vllm.config import AttentionConfig
    from vllm.v1.attention.backends.flash_attn import FlashAttentionMetadataBuilder
    from vllm.v1.worker.utils import AttentionGroup

    made, built = (inspect.getsource(getattr(FlashAttentionMetadataBuilder, name)) for name in ("__init__", "build"))
    has("max_num_splits = self.max_num_splits" in built, "FlashAttentionMetadataBuilder.max_num_splits")
    for used in ("self.max_num_splits = 0", "self.num_heads_kv = ", "self.attention_config = "):
        has(used in made, used)
    has(AttentionConfig().flash_attn_max_num_splits_for_cuda_graph == 32, "flash_attn_max_num_splits_for_cuda_graph")
    has(parameters(AttentionGroup.get_metadata_builder) == ["self", "ubatch_id"], "get_metadata_builder")


@pytest.mark.parametrize("mode", ["FULL", "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY"])
def test_a_graph_of_the_whole_step_has_its_rows_from_its_capture(mode: str):
    """What is bound by the rows at a capture is bound alike at each replay: 50 rows at most, which no graph has."""
    from vllm.config import CUDAGraphMode
    from vllm.v1.worker.gpu import cudagraph_utils, input_batch, model_runner

    manager = object.__new__(cudagraph_utils.CudaGraphManager)
    manager.compilation_config = SimpleNamespace(
        cudagraph_capture_sizes=[1, 2, 4, 8, 16, 32, 64, 96], max_cudagraph_capture_size=96
    )
    manager.vllm_config = SimpleNamespace(
        speculative_config=None, cache_config=SimpleNamespace(use_kda_recoverssm=False)
    )
    manager.cudagraph_mode, manager.max_num_reqs, manager.decode_query_len = CUDAGraphMode[mode], 50, 1
    manager.lora_capture_cases, manager.varlen_decode, manager.ubatch_runner = [0], False, None
    manager._candidates, manager._capture_descs = {}, {}
    manager._init_candidates()
    whole = manager._capture_descs[CUDAGraphMode.FULL]
    assert {1, 2, 4, 8, 16, 32} <= {one.num_tokens for one in whole}
    assert all(one.num_reqs == min(one.num_tokens, 50) for one in whole)
    for code, used in (
        (cudagraph_utils.ModelCudaGraphManager.capture, "num_reqs = desc.num_reqs or "),
        (input_batch.InputBatch.make_dummy, "num_reqs_after_padding=num_reqs,"),
        (model_runner.GPUModelRunner.prepare_inputs, "num_reqs_padded = batch_desc.num_reqs or num_reqs"),
    ):
        has(used in inspect.getsource(code), used)


def flash_attention(kv_heads: int, splits: int, most: int = 32) -> Any:
    """A group whose builder is FlashAttention's, without a GPU."""
    from vllm.v1.attention.backends.flash_attn import FlashAttentionMetadataBuilder

    builder = object.__new__(FlashAttentionMetadataBuilder)
    builder.num_heads_kv, builder.max_num_splits = kv_heads, splits
    builder.attention_config = SimpleNamespace(flash_attn_max_num_splits_for_cuda_graph=most)
    return SimpleNamespace(get_metadata_builder=lambda: builder)


def test_contexts_are_bound_to_one_part_by_sizes_alone():
    from ngrpo.rollout.vllm.private import bound_splits

    other = SimpleNamespace(get_metadata_builder=lambda: other_builder)
    other_builder = SimpleNamespace(max_num_splits=7)
    group, without_graphs = flash_attention(2, 32), flash_attention(2, 0)
    for rows, longest, splits in ((256, 1280, 1), (8, 1280, 32), (256, 2560, 1), (256, 2561, 32), (256, 1280, 1)):
        bound_splits([[group, other], [without_graphs]], rows, longest)
        assert group.get_metadata_builder().max_num_splits == splits
    assert other_builder.max_num_splits == 7
    assert without_graphs.get_metadata_builder().max_num_splits == 0
    for most in (1, 8):  # as a user may ask for
        group = flash_attention(2, most, most)
        for rows, splits in ((8, most), (256, 1), (8, most)):
            bound_splits([[group]], rows, 1280)
            assert group.get_metadata_builder().max_num_splits == splits


def test_one_part_is_never_much_slower_where_it_is_chosen():
    from ngrpo.rollout.vllm.private import bound_splits

    made = json.loads((ROOT / "docs/benchmarks/attention_splits_h200.json").read_text())
    ratios = []
    for _, kv_heads, rows, longest, _, one, many in made["rows"]:
        group = flash_attention(kv_heads, 32)
        bound_splits([[group]], rows, longest)
        if group.get_metadata_builder().max_num_splits == 1:
            ratios.append(one / many)
    assert len(ratios) > 20
    assert max(ratios) < 1.08
    assert sum(ratios) / len(ratios) < 0.97


def test_the_weight_transfer_has_what_is_called_and_replaced():
    from vllm import LLM
    from vllm.distributed.weight_transfer import ModuleSource, ipc_engine
    from vllm.distributed.weight_transfer.base import WeightTransferEngine
    from vllm.v1.worker.gpu_worker import Worker

    sender = ipc_engine.IPCTrainerWeightTransferEngine
    assert parameters(sender._all_gather_and_merge_handles) == ["self", "handles"]
    assert isinstance(inspect.getattr_static(sender, "_post_send_sync"), staticmethod)
    assert {"names", "dtype_names", "shapes", "ipc_handles"} <= set(parameters(ipc_engine.IPCWeightTransferUpdateInfo))
    assert "rank" in parameters(ipc_engine.IPCTrainerInitInfo)
    assert "self._module.named_parameters()" in inspect.getsource(ModuleSource)
    assert "self.model.load_weights(" in inspect.getsource(ipc_engine.IPCWeightTransferEngine.receive_weights)
    assert parameters(WeightTransferEngine.__init__) == ["self", "config", "vllm_config", "device", "model"]
    assert "self.weight_transfer_engine" in inspect.getsource(Worker.load_model)
    assert "isinstance(update_info, list)" in inspect.getsource(Worker.update_weights)
    assert parameters(LLM.finish_weight_update) == ["self", "weight_version"]
    for called in ("start_weight_update", "update_weights", "update_weight_version", "get_weight_version"):
        assert callable(getattr(LLM, called))


def test_cuda_ipc_exports_a_bucket_for_one_worker(monkeypatch):
    import torch
    from vllm.distributed.weight_transfer import ipc_engine

    from ngrpo.rollout.vllm import cuda_ipc
    from ngrpo.rollout.vllm.weight_receivers import InPlaceReceiver

    assert issubclass(cuda_ipc.CudaIpcReceiver, (InPlaceReceiver, ipc_engine.IPCWeightTransferEngine))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="this"))
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(ipc_engine, "reduce_tensor", lambda tensor: (None, (id(tensor), 1, 2, 3, 4, 5, 9, 7)))
    fields = cuda_ipc.exported([("a", torch.ones(2, 3)), ("b", torch.ones(4).bfloat16())])
    assert fields["names"] == ["a", "b"]
    assert fields["dtype_names"] == ["float32", "bfloat16"]
    assert [list(handles) for handles in fields["ipc_handles"]] == [["this"], ["this"]]

    # A worker of another GPU opens the trainer's memory as its own, where vLLM's would find no handle.
    loaded: list[Any] = []
    monkeypatch.setattr(ipc_engine, "rebuild_cuda_tensor", lambda *handle: handle)
    receiver = object.__new__(cuda_ipc.CudaIpcReceiver)
    receiver.device, receiver.packed = SimpleNamespace(index=1), False
    receiver.model = SimpleNamespace(load_weights=loaded.extend)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="that"))
    receiver.receive_weights(cuda_ipc.CudaIpcUpdate(pickle.dumps(fields)))
    assert [name for name, _ in loaded] == ["a", "b"]
    assert [handle[6] for _, handle in loaded] == [1, 1]
