"""Exploration for verl: rollouts of servers as its rollout engine and agent loop, and an actor that replays records.

Imported in all of verl's processes (``actor_rollout_ref.model.external_lib=ngrpo.plugins.verl``), this makes the
rollout engine ``ngrpo`` known, whose servers get the actor's weights after each update, and the agent loop ``ngrpo``,
which asks them for rollouts. It wraps one method of the FSDP engine: log-probs of policy, old policy and reference are
then computed on the inputs that the rollouts saw, wherever the batch has records; and one of the workers of agent
loops.
"""

from functools import wraps
from importlib.metadata import version
from typing import Any

from ngrpo.errors import SettingError
from ngrpo.plugins.verl_records import fields, packed, records_in
from ngrpo.replay.hook import replayed
from ngrpo.utils.optional_packages import require

require("verl", "ngrpo.plugins.verl")

from verl.experimental.agent_loop.agent_loop import AgentLoopWorker  # noqa: E402
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead  # noqa: E402
from verl.workers.rollout import base as rollouts  # noqa: E402
from verl.workers.rollout.replica import RolloutReplicaRegistry  # noqa: E402

from ngrpo.plugins import verl_agent_loop, verl_servers  # noqa: E402

__all__ = ["fields"]

TESTED = "0.9."
"""How the versions of verl begin whose engine is known."""


def replay_in(engine: type) -> None:
    """Lets an engine of verl replay the records in its batches; once is enough."""
    forward_step = engine.forward_step  # type: ignore[attr-defined]
    if hasattr(forward_step, "__wrapped__"):
        return

    @wraps(forward_step)
    def replaying(self: Any, micro_batch: Any, *args: Any, **kwargs: Any) -> Any:
        found = records_in(micro_batch)
        if found is None:
            return forward_step(self, micro_batch, *args, **kwargs)
        if self.use_ulysses_sp or not micro_batch.get("use_remove_padding", True):
            raise SettingError(
                "records are replayed in packed rows that no other rank has a part of; set use_remove_padding=true and "
                "ulysses_sequence_parallel_size=1."
            )
        lengths = micro_batch["input_ids"].offsets().diff().tolist()
        records = packed(found, lengths)
        records = records.padded(right=self._get_packed_pad_size(sum(lengths)))
        with replayed(self.module, records):
            return forward_step(self, micro_batch, *args, **kwargs)

    engine.forward_step = replaying  # type: ignore[attr-defined]


def install() -> None:
    """Makes the rollout engine and the agent loop known to verl, and wraps what has to be; once is enough.

    Raises:
        SettingError: verl is of a version that is not known.
    """
    if not version("verl").startswith(TESTED):
        raise SettingError(f"verl {version('verl')} is none that ngrpo.plugins.verl was tested with; install 0.9.")
    weights = verl_servers.ServedWeights
    rollouts._ROLLOUT_REGISTRY[verl_servers.NAME, "async"] = f"{weights.__module__}.{weights.__qualname__}"
    RolloutReplicaRegistry.register(verl_servers.NAME, lambda: verl_servers.ServedReplica)
    verl_agent_loop.tell_trajectories(AgentLoopWorker)
    replay_in(FSDPEngineWithLMHead)


install()
