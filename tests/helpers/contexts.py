"""Contexts of steps, with nothing in them but what a test gives."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ngrpo.exploration.base import StepContext

NO_ROWS = torch.zeros(0, 1)


def step_context(
    rows: int,
    position: int | Tensor = 5,
    ended: list[bool] | None = None,
    end_ids: tuple[int, ...] = (),
    tables: Mapping[str, Tensor] | None = None,
    embedding: Tensor = NO_ROWS,
    state: list[int] | None = None,
    progress: int = 0,
) -> StepContext:
    """A context of ``rows`` rows with different keys, all at ``position``."""
    return StepContext(
        keys=torch.arange(rows) * 1_000_003,
        positions=torch.as_tensor(position).expand(rows),
        embedding=embedding,
        ended=torch.tensor(ended or [False] * rows),
        end_ids=torch.tensor(end_ids, dtype=torch.int64),
        tables=tables or {},
        state=torch.tensor(state or [0] * rows, dtype=torch.int32),
        progress=torch.tensor(progress),
    )
