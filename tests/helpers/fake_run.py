"""Stand-ins for the trainer and the module that a callback is given."""

import operator
from collections.abc import Callable
from functools import reduce
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ngrpo.types.problems import PromptBatch

OPERATIONS = {"sum": operator.add, "max": torch.maximum, "min": torch.minimum}


class Strategy:
    """A process group of which this is one rank: ``others`` are what the other ranks bring to each reduction."""

    root_device = torch.device("cpu")

    def __init__(self, others: list[list[Tensor]] | None = None) -> None:
        self.others = others or []
        self.own: list[Tensor] = []

    def reduce(self, tensor: Tensor, group: Any = None, *, reduce_op: str) -> Tensor:
        place = len(self.own)
        self.own.append(tensor)
        return reduce(OPERATIONS[reduce_op], [other[place] for other in self.others], tensor)

    def broadcast(self, thing: Any) -> Any:
        return thing

    def barrier(self) -> None:
        pass


class Module:
    """Keeps what is logged."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.logged: dict[str, float] = {}

    def log(self, tag: str, value: Tensor, batch_size: int) -> None:
        self.logged[tag] = float(value)

    def log_dict(self, values: dict[str, Tensor], batch_size: int) -> None:
        self.logged |= {tag: float(value) for tag, value in values.items()}


class Logger:
    """Keeps (step, metrics), and (tag, medium, step)."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.media: list[tuple[str, Any, int]] = []

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.logged.append((step, metrics))

    def log_media(self, media: dict[str, Any], step: int) -> None:
        self.media += [(tag, medium, step) for tag, medium in media.items()]

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        self.settings = params


def trainer(strategy: Strategy | None = None, callbacks: list[Any] | None = None, **more: Any) -> Any:
    return SimpleNamespace(
        strategy=strategy or Strategy(), callbacks=callbacks or [], loggers=[Logger()], global_rank=0, world_size=1,
        is_global_zero=True, should_stop=False, **({"callback_metrics": {}, "ckpt_path": None} | more),
    )  # fmt: skip


def batch(iteration: int, experience: Any = None) -> PromptBatch:
    made = PromptBatch([], 0, iteration)
    made.experience = experience
    return made


def on_ranks(log: Callable[[Any, Module, int], None], ranks: int) -> list[dict[str, float]]:
    """Runs ``log(trainer, module, rank)`` on ``ranks`` ranks and returns what each logs."""
    alone = [Strategy() for _ in range(ranks)]
    for rank, strategy in enumerate(alone):
        log(trainer(strategy), Module(), rank)
    logged = []
    for rank in range(ranks):
        module = Module()
        others = [strategy.own for other, strategy in enumerate(alone) if other != rank]
        log(trainer(Strategy(others)), module, rank)
        logged.append(module.logged)
    return logged
