"""Makes three optimiser steps on recorded rollouts and keeps what came of it; also run under torchrun.

torchrun --nproc-per-node 2 tests/helpers/tensor_probe.py TENSOR_PARALLEL_SIZE CASES.pt OUTCOMES.pt
"""

import os
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from lightning import Callback, Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader
from update_probe import ALGORITHMS, HEAD, Case, GivenExperience

from ngrpo.distributed.collectives import gathered, gathered_everywhere, ranks
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.sharding import full
from ngrpo.training.critic_update import CriticSettings
from ngrpo.training.module import PolicyOptimization
from ngrpo.training.update_settings import UpdateSettings
from ngrpo.types.problems import PromptBatch

LIMIT = 0.5
"""Below every gradient norm here, so that steps depend on it."""
SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
CRITIC = CriticSettings(SGD, max_grad_norm=LIMIT)


@dataclass
class Outcome:
    """After an iteration of three optimiser steps; whole tensors, rollouts in the case's order.

    Attributes:
        metrics: what was logged.
        log_probs: of each rollout under the new policy.
        weights: of policy and critic.
        whole: parameters that are not split over the tensor group.
        equal: whether those were the same bits on all ranks before each step, and are after the last.
    """

    metrics: dict[str, float]
    log_probs: list[Tensor]
    weights: dict[str, Tensor]
    whole: list[str]
    equal: list[bool]


class Keep(Callback):
    """Looks at parameters before each step and at everything after the last."""

    def __init__(self) -> None:
        self.equal: list[bool] = []
        self.outcome: Outcome | None = None

    def on_train_start(self, trainer, pl_module) -> None:
        if pl_module.critic is not None:  # a head of zeros gives the body no gradient
            torch.nn.init.constant_(pl_module.critic.head.weight, HEAD)

    def on_before_optimizer_step(self, trainer, pl_module, optimizer) -> None:
        self._compare(pl_module)

    def _compare(self, module) -> list[str]:
        whole = {n: p for n, p in module.named_parameters() if not (isinstance(p, DTensor) and p.device_mesh.ndim == 2)}
        bits = {name: full(parameter.detach()).clone().numpy().tobytes() for name, parameter in whole.items()}
        self.equal.append(all(other == bits for other in gathered_everywhere(bits)))
        return list(whole)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        own = pl_module.scorer.log_probs(pl_module.policy, batch.experience.rollouts)
        self.outcome = Outcome(
            {name: float(value) for name, value in trainer.callback_metrics.items() if not name.startswith("time/")},
            in_case_order(gathered(own), batch.experience.rewards.shape[1]),
            {name: full(parameter.detach()).clone() for name, parameter in pl_module.named_parameters()},
            self._compare(pl_module),
            self.equal,
        )


def by_data_rank(case: Case, data: int) -> Case:
    """Puts the groups of each data rank together; distributed one by one, minibatches are those of a single process."""
    size = case.rewards.shape[1]
    order = [group for rank in range(data) for group in range(rank, len(case.rewards), data)]
    rollouts = [case.rollouts[group * size + i] for group in order for i in range(size)]
    return replace(case, rollouts=rollouts, rewards=case.rewards[order])


def in_case_order(parts: list[list[Tensor]], size: int) -> list[Tensor]:
    """Returns what each data rank has of its rollouts in the case's order."""
    groups = [[part[start : start + size] for start in range(0, len(part), size)] for part in parts]
    return [tensor for same in zip(*groups, strict=True) for group in same for tensor in group]


def outcome(case: Case, processes: int = 1, tensor: int = 1) -> Outcome:
    """Trains on the case's rollouts, distributed over the data ranks."""
    torch.manual_seed(0)
    keep = Keep()
    sizes = {"data_parallel_size": processes // tensor, "tensor_parallel_size": tensor}
    trainer = Trainer(
        accelerator="cpu", devices=processes, strategy=ModelParallelStrategy(**sizes) if processes > 1 else "auto",
        max_epochs=1, callbacks=[keep], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False,
    )  # fmt: skip
    algorithm = replace(ALGORITHMS[case.algorithm], optimizer_steps=3, prompts_per_batch=len(case.rewards))
    module = PolicyOptimization(
        ModelSource(case.model_path, **case.source), algorithm, case.exploration, SGD,
        UpdateSettings(
            temperature=case.temperature, microbatch_tokens=case.microbatch_tokens, max_grad_norm=LIMIT,
            precision=case.precision,
        ),
        CRITIC if algorithm.credit.needs_values else None,
    )  # fmt: skip
    batch = PromptBatch([], 0, 0)
    batch.experience = GivenExperience(
        by_data_rank(case, processes // tensor), trainer.global_rank // tensor, processes // tensor
    )
    trainer.fit(module, DataLoader([batch], batch_size=None))
    assert ranks().tensor_size == tensor
    assert keep.outcome is not None
    return keep.outcome


if __name__ == "__main__":
    torch.set_num_threads(1)
    cases = torch.load(sys.argv[2], weights_only=False)
    size = int(os.environ["WORLD_SIZE"])
    made = {name: vars(outcome(case, size, int(sys.argv[1]))) for name, case in cases.items()}
    if torch.distributed.get_rank() == 0:
        torch.save(made, Path(sys.argv[3]))
