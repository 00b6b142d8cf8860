"""The workers' side of a weight transfer: engines of vLLM's weight-transfer interface, one class a way.

They load in place. vLLM's layerwise reload, which its own backends use, would load into new memory and copy: slower by
far, blind to what did not come (a dropped tensor leaves what the memory held), and on a CPU its repacked weights can no
longer be read, so that nothing could be checked.
"""

from dataclasses import dataclass
from functools import cache
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import torch
from torch import nn
from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo

from ngrpo.rollout.vllm.checked_loading import CheckedModel
from ngrpo.rollout.vllm.weight_senders import Bucket, ByCudaIpc, ByReference, BySharedMemory, shared_view


class InPlaceReceiver(WeightTransferEngine):
    """What all ways share: weights are marked before they come, and recorded when they are loaded.

    Attributes:
        model: the worker's served model, as a `CheckedModel`.
    """

    init_info_cls = WeightTransferInitInfo
    model: CheckedModel

    def __init__(self, config: Any, vllm_config: Any, device: torch.device, model: nn.Module) -> None:
        super().__init__(config, vllm_config, device, CheckedModel(model))

    def init_transfer_engine(self, init_info: Any) -> None:
        """Does nothing: there is nothing to agree upon."""

    def start_weight_update(self) -> None:
        """Marks all that is served."""
        self.model.expect()

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Loads a bucket; the trainer may free its tensors once this returns."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def finish_weight_update(self) -> None:
        """Does nothing: the weights are where they are served."""

    def shutdown(self) -> None:
        """Does nothing: nothing is held."""


@dataclass
class ReferenceUpdate(WeightTransferUpdateInfo):
    """Tensors of this process."""

    weights: Bucket


class ReferenceReceiver(InPlaceReceiver):
    """Other end of `ByReference`."""

    update_info_cls = ReferenceUpdate

    def receive_weights(self, update_info: ReferenceUpdate) -> None:
        """Loads a bucket."""
        self.model.load_weights(update_info.weights)


@dataclass
class SharedMemoryUpdate(WeightTransferUpdateInfo):
    """Tensors in the shared memory of a name, each at an offset in bytes."""

    memory: str
    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]
    offsets: list[int]


class SharedMemoryReceiver(InPlaceReceiver):
    """Other end of `BySharedMemory`."""

    update_info_cls = SharedMemoryUpdate

    def receive_weights(self, update_info: SharedMemoryUpdate) -> None:
        """Loads a bucket."""
        memory = SharedMemory(update_info.memory)
        kinds = zip(update_info.dtypes, update_info.shapes, update_info.offsets, strict=True)
        try:
            tensors = [shared_view(memory, getattr(torch, dtype), shape, offset) for dtype, shape, offset in kinds]
            self.model.load_weights(zip(update_info.names, tensors, strict=True))
        finally:
            memory.close()


@cache
def register() -> None:
    """Makes the receivers known to vLLM, in every process that has a worker of ours."""
    here, ipc = __name__, "ngrpo.rollout.vllm.cuda_ipc"
    WeightTransferEngineFactory.register_engine(ByReference.backend, here, ReferenceReceiver.__name__)
    WeightTransferEngineFactory.register_engine(BySharedMemory.backend, here, SharedMemoryReceiver.__name__)
    WeightTransferEngineFactory.register_engine(ByCudaIpc.backend, ipc, "CudaIpcReceiver")
