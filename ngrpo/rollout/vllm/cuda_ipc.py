"""Both sides of vLLM's CUDA IPC backend, as our transfers use it: for any number of workers and training processes."""

import pickle
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.weight_transfer import ModuleSource
from vllm.distributed.weight_transfer.base import WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.ipc_engine import (
    IPCTrainerInitInfo,
    IPCTrainerWeightTransferEngine,
    IPCWeightTransferEngine,
    IPCWeightTransferUpdateInfo,
)

from ngrpo.rollout.vllm.weight_receivers import InPlaceReceiver
from ngrpo.rollout.vllm.weight_senders import Bucket


def exported(bucket: Bucket) -> dict[str, Any]:
    """Returns the fields of vLLM's ``IPCWeightTransferUpdateInfo`` for one worker; the tensors must outlive its use."""
    client = _Client()
    sender = _Sender.trainer_init(IPCTrainerInitInfo(rank=0), client=client, source=ModuleSource(_Parameters(bucket)))
    sender.send_weights()
    return client.fields


class _Client:
    """Keeps what vLLM's sender would have its client send: it travels through our own session."""

    fields: dict[str, Any]

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None: ...

    def start_weight_update(self) -> None: ...

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.fields = update_info

    def finish_weight_update(self, weight_version: str | None = None) -> None: ...


class _Parameters:
    """A bucket as vLLM's ``ModuleSource`` reads a module."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def named_parameters(self) -> Bucket:
        return self._bucket


class _Sender(IPCTrainerWeightTransferEngine):
    """VLLM's sender within this process: each training process sends to an engine of its own.

    vLLM's would gather the handles of all training processes, and hang when one of them has lost its engine.
    """

    def _all_gather_and_merge_handles(self, handles: list[Any]) -> list[Any]:
        return handles

    @staticmethod
    def _post_send_sync() -> None: ...


@dataclass
class CudaIpcUpdate(WeightTransferUpdateInfo):
    """What `exported` returns, pickled: vLLM's messages carry no handles."""

    exported: bytes


class CudaIpcReceiver(InPlaceReceiver, IPCWeightTransferEngine):
    """Other end of `ByCudaIpc`, on any GPU: vLLM's looks for handles of its own GPU only."""

    update_info_cls = CudaIpcUpdate

    def receive_weights(self, update_info: CudaIpcUpdate) -> None:
        """Loads a bucket."""
        fields = pickle.loads(update_info.exported)
        own = str(torch.cuda.get_device_properties(self.device).uuid)
        fields["ipc_handles"] = [{own: handle} for handles in fields["ipc_handles"] for handle in handles.values()]
        super().receive_weights(IPCWeightTransferUpdateInfo(**fields))
