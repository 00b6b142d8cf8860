"""Exploration for verl: records as fields of its batches, and its FSDP actor replaying them.

Imported in verl's workers (``actor_rollout_ref.model.external_lib=ngrpo.plugins.verl``), this wraps one method of the
FSDP engine: log-probs of policy, old policy and reference are then computed on the inputs that the rollouts saw,
wherever the batch has records. An agent loop puts them there: it adds `fields` to its output's ``extra_fields``.
"""

from collections.abc import Mapping, Sequence
from functools import wraps
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.plugins.strategies import check_replayed_by_records, check_scored_by_token
from ngrpo.replay.hook import replayed
from ngrpo.replay.records import RecordTensors
from ngrpo.types.rollouts import Rollout
from ngrpo.utils.optional_packages import require

require("verl", "ngrpo.plugins.verl")

from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead  # noqa: E402

TESTED = "0.9."
"""How the versions of verl begin whose engine is known."""

FIELD = "exploration"
"""The field of a batch that holds a record for each of its rows."""


def fields(rollout: Rollout, strategy: Exploration) -> dict[str, dict[str, Tensor]]:
    """Returns what to add to the ``extra_fields`` of an AgentLoopOutput with a rollout's prompt and response.

    Args:
        rollout: that of the output.
        strategy: what made it.

    Raises:
        SettingError: verl would score the strategy's steps, or replay them, otherwise than they were made.
    """
    check_scored_by_token(strategy, "verl")
    check_replayed_by_records(strategy, "verl")
    whole = RecordTensors.of([rollout], torch.ones(1, rollout.tokens))
    return {FIELD: {name: tensor[0] for name, tensor in whole.tensors().items()}}


def packed(rows: Sequence[Mapping[str, Tensor]], lengths: Sequence[int]) -> RecordTensors:
    """Returns the records of packed rows, [1, N].

    Args:
        rows: what `fields` gave of each.
        lengths: tokens of each row in the batch, N in all.

    Raises:
        ValueError: a row has another number of tokens than its record.
    """
    parts = [RecordTensors.from_tensors(row).map(lambda tensor: tensor[None]) for row in rows]
    for number, (part, length) in enumerate(zip(parts, lengths, strict=True)):
        if part.tokens.shape[1] != length:
            raise ValueError(f"row {number} has {length} tokens, and its record {part.tokens.shape[1]}; cut both alike")
    joined = [part.map(lambda tensor: tensor[0]).tensors() for part in parts]
    return RecordTensors.from_tensors({name: torch.cat([part[name] for part in joined])[None] for name in joined[0]})


def replay_in(engine: type) -> None:
    """Lets an engine of verl replay the records in its batches; once is enough.

    Raises:
        SettingError: verl is of a version that is not known.
    """
    if not version("verl").startswith(TESTED):
        raise SettingError(f"verl {version('verl')} is none that ngrpo.plugins.verl was tested with; install 0.9.")
    forward_step = engine.forward_step  # type: ignore[attr-defined]
    if hasattr(forward_step, "__wrapped__"):
        return

    @wraps(forward_step)
    def replaying(self: Any, micro_batch: Any, *args: Any, **kwargs: Any) -> Any:
        if FIELD not in micro_batch.keys():  # noqa: SIM118 (a TensorDict's `in` is refused)
            return forward_step(self, micro_batch, *args, **kwargs)
        if self.use_ulysses_sp or not micro_batch.get("use_remove_padding", True):
            raise SettingError(
                "records are replayed in packed rows that no other rank has a part of; set use_remove_padding=true and "
                "ulysses_sequence_parallel_size=1."
            )
        lengths = micro_batch["input_ids"].offsets().diff().tolist()
        records = packed(list(micro_batch[FIELD]), lengths)
        records = records.padded(right=self._get_packed_pad_size(sum(lengths)))
        with replayed(self.module, records):
            return forward_step(self, micro_batch, *args, **kwargs)

    engine.forward_step = replaying  # type: ignore[attr-defined]


replay_in(FSDPEngineWithLMHead)
