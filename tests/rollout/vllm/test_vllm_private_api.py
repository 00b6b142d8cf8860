"""Fails by name where vLLM moves something private that the adapters use."""

import inspect
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm


def parameters(function) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_model_runner_v2_chooses_states_through_the_name_that_is_replaced():
    from vllm.v1.worker.gpu import model_states

    from ngrpo.rollout.vllm import runner_v2

    runner_v2.install()
    resolve = model_states.resolve_model_state_cls
    assert resolve.ngrpo
    assert "resolve_model_state_cls" in model_states.init_model_state.__code__.co_names
    assert parameters(inspect.getclosurevars(resolve).nonlocals["resolve"]) == ["vllm_config", "model"]
    runner_v2.install()
    assert model_states.resolve_model_state_cls is resolve


def test_model_runner_v2_has_the_hooks():
    from vllm.v1.worker.gpu import input_batch, model_runner
    from vllm.v1.worker.gpu.model_states.default import DefaultModelState
    from vllm.v1.worker.gpu.sample.output import SamplerOutput
    from vllm.v1.worker.gpu.sample.sampler import Sampler

    assert parameters(DefaultModelState.__init__) == ["self", "vllm_config", "model", "encoder_cache", "device"]
    assert parameters(DefaultModelState.add_request) == ["self", "req_index", "new_req_data"]
    assert parameters(DefaultModelState.apply_staged_writes) == ["self"]
    assert parameters(DefaultModelState.preprocess_state)[:2] == ["self", "input_batch"]
    assert parameters(DefaultModelState.custom_sampler) == ["self", "sampler"]
    assert parameters(Sampler.__call__)[:3] == ["self", "logits", "input_batch"]
    used = {"num_reqs", "num_tokens", "idx_mapping", "query_start_loc", "positions", "seq_lens", "cu_num_logits"}
    assert used <= set(input_batch.InputBatch.__dataclass_fields__)
    assert parameters(input_batch.get_num_sampled_and_rejected) == [
        "num_sampled",
        "seq_lens",
        "cu_num_logits",
        "idx_mapping",
        "prefill_len",
    ]
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


def test_the_v1_runner_has_what_is_wrapped_and_read():
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    assert "load_model" in vars(CPUModelRunner)
    assert {"input_ids", "positions"} <= set(parameters(GPUModelRunner._model_forward))
    assert parameters(GPUModelRunner._sample) == ["self", "logits", "spec_decode_metadata"]
    source = inspect.getsource(GPUModelRunner)
    for used in (
        "self._model_forward(",
        "positions=positions",
        "self._sample(",
        "self.discard_request_mask.np",
        "self.query_start_loc.np",
        "self.input_batch.req_ids",
        "self.input_batch.num_reqs",
        "self.requests",
        "self.max_num_tokens",
    ):
        assert used in source, used


def test_block_hashes_are_made_through_the_name_that_is_replaced():
    from vllm.v1.core import block_pool, kv_cache_utils
    from vllm.v1.request import Request

    from ngrpo.rollout.vllm import prefix_cache

    prefix_cache.install()
    keys = kv_cache_utils.generate_block_hash_extra_keys
    assert keys.ngrpo
    assert block_pool.generate_block_hash_extra_keys is keys
    assert len(parameters(inspect.getclosurevars(keys).nonlocals["extra_keys"])) == 4
    assert "generate_block_hash_extra_keys" in inspect.getsource(kv_cache_utils.get_request_block_hasher)
    assert {"sampling_params", "request_id", "num_prompt_tokens"} <= set(
        inspect.getsource(Request).replace(".", " ").split()
    )


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
