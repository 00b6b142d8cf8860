"""The methods that our engine calls on vLLM's workers; importing this installs the hooks in the worker's process."""

import pickle
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ngrpo.rollout.records.session import CollectedRecords
from ngrpo.rollout.vllm import plugin
from ngrpo.rollout.vllm.checksum import checksum
from ngrpo.rollout.vllm.coverage import mark, unwritten
from ngrpo.rollout.vllm.mixing_state import MixingState
from ngrpo.rollout.vllm.tensor_ipc import open_handles

plugin.install()
plugin.keep_weights_loadable()


class WorkerExtension:
    """Mixed into vLLM's worker class (``worker_extension_cls``)."""

    model_runner: Any
    rank: int

    def ngrpo_hooks(self) -> Any:
        """Returns the adapter of this worker's runner."""
        runner = self.model_runner
        return runner.ngrpo_hooks if hasattr(runner, "ngrpo_hooks") else runner.model_state

    def ngrpo_mixing_state(self) -> MixingState:
        """Returns this worker's mixing state (in-process callers only)."""
        state: MixingState = self.ngrpo_hooks().mixing
        return state

    def ngrpo_reset(self) -> None:
        """Zeroes our buffers after a sleep, which frees vLLM's memory pool."""
        self.ngrpo_hooks().reset()

    def ngrpo_begin(self, session: int, spec: bytes) -> None:
        """Starts a session; ``spec`` is a pickled `SessionSpec`."""
        self.ngrpo_mixing_state().begin(session, pickle.loads(spec))

    def ngrpo_collect(self, session: int, slots: list[int], lengths: list[int]) -> CollectedRecords | None:
        """Returns the records of finished requests on the first worker (in-process callers only)."""
        return self.ngrpo_mixing_state().collect(session, slots, lengths) if self.rank == 0 else None

    def ngrpo_collect_serialized(self, session: int, slots: list[int], lengths: list[int]) -> bytes:
        """Does the same for another process."""
        return pickle.dumps(self.ngrpo_collect(session, slots, lengths))

    def ngrpo_end(self, session: int) -> None:
        """Ends a session."""
        self.ngrpo_mixing_state().end(session)

    def ngrpo_expect_weights(self) -> None:
        """Marks all that is served, before weights come."""
        self.ngrpo_received: dict[str, int] = {}
        mark(self.model_runner.model)

    def ngrpo_load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Loads a bucket of (transformers name, tensor)."""
        bucket = list(weights)
        self.ngrpo_received |= {name: checksum(tensor) for name, tensor in bucket}
        with torch.no_grad():
            self.model_runner.model.load_weights(iter(bucket))

    def ngrpo_load_shared(self, weights: list[bytes]) -> None:
        """Loads a bucket that another process shares; handles for each worker, since they can be open_handles once."""
        self.ngrpo_load_weights(open_handles(weights[self.rank]))
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # the other process may free the tensors once this returns

    def ngrpo_received_weights(self) -> dict[str, int]:
        """Returns the checksums of the tensors that came since `ngrpo_expect_weights`, by transformers name."""
        return self.ngrpo_received

    def ngrpo_unwritten_weights(self) -> list[str]:
        """Returns the served parameters that they have not filled, by vLLM's name."""
        return unwritten(self.model_runner.model)

    def ngrpo_served_weights(self) -> dict[str, int]:
        """Returns the checksums of this worker's parameters, by vLLM's name."""
        return {name: checksum(parameter) for name, parameter in self.model_runner.model.named_parameters()}

    def ngrpo_embedding(self) -> Tensor:
        """Returns this worker's rows of the input embedding, without padding; [rows, d]."""
        module: Any = self.ngrpo_mixing_state().embedding
        rows: Tensor = module.weight.data[: module.shard_indices.num_org_elements]
        return rows

    def ngrpo_embedding_serialized(self) -> bytes:
        """Returns the same for another process."""
        return pickle.dumps(self.ngrpo_embedding().cpu())
