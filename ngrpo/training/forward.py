"""Forward passes over rollouts in microbatches, the same for policy, reference and critic."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ngrpo.algo.moments import Reduce
from ngrpo.distributed.collectives import world_size
from ngrpo.modeling.cost import PassCost
from ngrpo.modeling.gathering import gathered_once, reshard
from ngrpo.modeling.packing import PackedBatch, first_with_prompt, pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.precision import computing_in
from ngrpo.training.batching import SequencePrompt, microbatches
from ngrpo.training.memory_budget import MemoryBudget
from ngrpo.types.rollouts import Rollout

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ForwardPasses:
    """Packs rollouts into microbatches that every rank makes equally many of, and runs models on them.

    Attributes:
        device: where the models are.
        budget: most tokens (prompts included) in one forward pass; lowered when memory runs out.
        mixed_in: dtype to compute in, whatever that of the parameters; None computes in theirs.
        cost: tokens of a sequence -> what a forward pass over it costs.
        reduce: over the data ranks.
        gather_once: let sharded models keep gathered weights, and gradients, over the microbatches that belong
            together.
        share_prompts: compute a prompt once in a microbatch, and keep rollouts of one together.
    """

    device: torch.device
    budget: MemoryBudget
    mixed_in: torch.dtype | None
    cost: PassCost
    reduce: Reduce
    gather_once: bool = False
    share_prompts: bool = True

    def precision(self, model: ScoringModel) -> AbstractContextManager[None]:
        """Returns the context that forward and backward of a model belong into."""
        return nullcontext() if self.mixed_in is None else computing_in(model, self.mixed_in)

    @contextmanager
    def microbatches(self, model: ScoringModel, rollouts: Sequence[Rollout]) -> Iterator[Iterator[list[int]]]:
        """The context that a model's forward passes over rollouts, which belong together, are made in (a collective).

        Yields:
            The indices of each microbatch's rollouts, in the order of the forward passes.
        """
        gathering = gathered_once(model) if self.gather_once else nullcontext(iter)
        with self.precision(model), gathering as in_turn:
            yield in_turn(self._partition(rollouts))
        reshard(model)

    def _partition(self, rollouts: Sequence[Rollout]) -> list[list[int]]:
        lengths = [r.tokens for r in rollouts]
        costs = [self.cost(n) for n in lengths]
        most = self.budget.tokens
        prompts = _prompts(rollouts) if self.share_prompts else None
        return microbatches(lengths, costs, most, lambda count: int(self.reduce(torch.tensor(count), "max")), prompts)

    def within_memory(
        self, work: Callable[[], T], rollouts: Sequence[Rollout], clear: Callable[[], None] = lambda: None
    ) -> T:
        """Does some work in microbatches, again in smaller ones if memory runs out.

        Args:
            work: makes forward passes over the rollouts.
            rollouts: at least one.
            clear: undoes what the work had done when it stopped.

        Raises:
            RunError: memory ran out, and smaller microbatches are of no help.
        """
        return self.budget.fit(work, clear, max(rollout.tokens for rollout in rollouts), world_size())

    def run(self, forward: Callable[[PackedBatch], T], rollouts: Sequence[Rollout]) -> tuple[PackedBatch, T]:
        """Runs one microbatch; returns it as the model saw it, and what the model makes of it."""
        batch = pack(rollouts, self.share_prompts).to(self.device)
        return batch, forward(batch)

    @torch.no_grad()
    def by_rollout(
        self,
        model: ScoringModel,
        forward: Callable[[PackedBatch], Tensor],
        rollouts: Sequence[Rollout],
        further: int = 0,
    ) -> list[Tensor]:
        """Returns the numbers that ``forward`` gives the generated tokens by ``model``, in order; on the CPU.

        [N] for each response of N generated tokens, or [N + further] where ``forward`` gives it as many more.
        """
        order, made = [], []
        with self.microbatches(model, rollouts) as parts:
            for indices in parts:
                order += indices
                made.append(self.run(forward, [rollouts[i] for i in indices])[1])
        # Fetched together, since fetching waits for the device.
        numbers = torch.split(torch.cat(made).cpu(), [rollouts[i].generated + further for i in order])
        by_index = dict(zip(order, numbers, strict=True))
        return [by_index[i] for i in range(len(rollouts))]


def _prompts(rollouts: Sequence[Rollout]) -> list[SequencePrompt]:
    return [SequencePrompt(first, len(rollouts[first].prompt_ids)) for first in first_with_prompt(rollouts)]
