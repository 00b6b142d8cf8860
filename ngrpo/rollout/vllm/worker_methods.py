"""The methods that our engine calls on vLLM's workers; importing this registers our model loader in their process."""

import pickle
from collections.abc import Callable
from typing import Any

from torch import Tensor

import ngrpo.rollout.vllm.loader  # noqa: F401  (it registers itself)
from ngrpo.rollout.records.session import CollectedRecords
from ngrpo.rollout.vllm import plugin, weight_receivers
from ngrpo.rollout.vllm.attachment import attachment_of
from ngrpo.rollout.vllm.checked_loading import CheckedModel
from ngrpo.rollout.vllm.embedding import UnmixableModelError
from ngrpo.rollout.vllm.mixing_state import MixingState

plugin.install()
weight_receivers.register()


class WorkerMethods:
    """Mixed into vLLM's worker class (see `ngrpo.rollout.vllm.worker`)."""

    weight_transfer_engine: Any
    rank: int
    get_model: Callable[[], Any]

    def ngrpo_attach(self) -> str | None:
        """Hooks this worker's runner where its model could not name the hooks, which is so for the V1 runner.

        Returns:
            Why mixtures cannot enter the model, in words that follow its name; None if they can.
        """
        try:
            attachment = attachment_of(self.get_model())
        except UnmixableModelError as error:
            return str(error)
        if attachment.runner is None:
            from ngrpo.rollout.vllm.runner_v1 import RunnerV1Hooks

            RunnerV1Hooks(self, attachment)
        return None

    def ngrpo_hooks(self) -> Any:
        """Returns the adapter of this worker's runner."""
        return attachment_of(self.get_model()).runner

    def ngrpo_mixing_state(self) -> MixingState:
        """Returns this worker's mixing state (in-process callers only)."""
        state: MixingState = attachment_of(self.get_model()).mixing
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

    def ngrpo_weight_fault(self, sent: dict[str, int]) -> str:
        """Returns what is wrong after a transfer of tensors with these checksums (see `CheckedModel.fault`)."""
        return self._ngrpo_checked_model().fault(sent)

    def ngrpo_unread_weights(self) -> list[str]:
        """Returns the tensors of a transfer that this worker serves nothing of (see `CheckedModel.unread`)."""
        return self._ngrpo_checked_model().unread()

    def ngrpo_served_weights(self) -> dict[str, int]:
        """Returns the checksums of what this worker serves, by vLLM's name."""
        return self._ngrpo_checked_model().served()

    def _ngrpo_checked_model(self) -> CheckedModel:
        model: CheckedModel = self.weight_transfer_engine.model
        return model

    def ngrpo_embedding(self) -> Tensor:
        """Returns this worker's rows of the input embedding, without padding; [rows, d]."""
        module: Any = self.ngrpo_mixing_state().embedding
        rows: Tensor = module.weight.data[: module.shard_indices.num_org_elements]
        return rows

    def ngrpo_embedding_serialized(self) -> bytes:
        """Returns the same for another process."""
        return pickle.dumps(self.ngrpo_embedding().cpu())
