"""TRL's loss and gradient of mixed rollouts, step by step, against this project's own algorithms and scoring model."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="the extra ngrpo[trl] is not installed")
pytestmark = pytest.mark.trl

from ngrpo.algo import advantage, aggregate, ratio  # noqa: E402
from ngrpo.algo.aggregate import BatchTotals  # noqa: E402
from ngrpo.algo.clip import clipped_surrogate  # noqa: E402
from ngrpo.algo.credit import ScoredBatch  # noqa: E402
from ngrpo.algo.groups import Groups  # noqa: E402
from ngrpo.algo.kl import weighted_k3  # noqa: E402
from ngrpo.algo.policy_loss import Algorithm  # noqa: E402
from ngrpo.exploration.neighbor import NeighborMixing  # noqa: E402
from ngrpo.modeling.attention import IMPLEMENTATION  # noqa: E402
from ngrpo.modeling.loading import MODEL_PATH  # noqa: E402
from ngrpo.modeling.packing import pack  # noqa: E402
from ngrpo.modeling.policy import ScoringModel, TokenScores  # noqa: E402
from ngrpo.plugins.trl import ExploringGRPOTrainer  # noqa: E402
from ngrpo.rewards.plain_texts import TextReward  # noqa: E402
from ngrpo.training.samples import Sample, batch_totals, loss_inputs  # noqa: E402
from ngrpo.types.rollouts import Rollout  # noqa: E402

LENGTH = 48
STANDARDISED = partial(advantage.group_standardised, eps=1e-4)
CLIP = partial(clipped_surrogate, low=0.2, high=0.2)


@dataclass(frozen=True)
class Same:
    """A method in both programs.

    Attributes:
        trl: changed settings of GRPOConfig.
        own: this project's.
        totals: what TRL divides by instead of the counts of the optimiser's batch.
    """

    trl: dict[str, Any]
    own: Algorithm
    totals: Callable[[BatchTotals, dict[str, Any]], BatchTotals] = field(default=lambda totals, inputs: totals)


def half_of_the_generations_tokens(totals: BatchTotals, inputs: dict[str, Any]) -> BatchTotals:
    return BatchTotals(totals.sequences, float(inputs["num_items_in_batch"]) / 2)  # type: ignore[arg-type]


def uncapped(log_prob: torch.Tensor, ref_log_prob: torch.Tensor, old_log_prob: torch.Tensor) -> torch.Tensor:
    """weighted_k3 without the bounds on it, which TRL does not have."""
    delta = ref_log_prob - log_prob
    return (log_prob - old_log_prob).exp() * (delta.expm1() - delta)


CASES = {
    "dr_grpo": Same(
        {"loss_type": "dr_grpo", "scale_rewards": "none", "beta": 0.0},
        Algorithm(
            advantage.group_centred, ratio.token, CLIP, partial(aggregate.const_norm, length=LENGTH), weighted_k3
        ),
    ),
    "gspo": Same(
        {"importance_sampling_level": "sequence", "loss_type": "grpo", "beta": 0.0, "epsilon": 3e-4,
         "epsilon_high": 4e-4},
        Algorithm(
            STANDARDISED, ratio.sequence, partial(clipped_surrogate, low=3e-4, high=4e-4),
            aggregate.seq_mean_token_mean, weighted_k3,
        ),
    ),
    "grpo": Same(
        {"loss_type": "grpo", "beta": 0.05, "learning_rate": 3e-4},
        Algorithm(STANDARDISED, ratio.token, CLIP, aggregate.seq_mean_token_mean, weighted_k3, kl_coef=0.05),
    ),
    "grpo far from the reference": Same(
        {"loss_type": "grpo", "beta": 0.05},
        Algorithm(STANDARDISED, ratio.token, CLIP, aggregate.seq_mean_token_mean, uncapped, kl_coef=0.05),
    ),
    "token mean": Same(
        {"loss_type": "bnpo", "beta": 0.0},
        Algorithm(STANDARDISED, ratio.token, CLIP, aggregate.token_mean, weighted_k3),
    ),
    "dapo": Same(
        {"loss_type": "dapo", "beta": 0.0},
        Algorithm(STANDARDISED, ratio.token, CLIP, aggregate.token_mean, weighted_k3),
        half_of_the_generations_tokens,
    ),
}  # fmt: skip


class Compared(ExploringGRPOTrainer):
    """Computes each step's loss and gradient again: advantages, old and reference log-probs, ratio, clip, sum."""

    def __init__(self, same: Same, *args: Any, **kwargs: Any) -> None:
        self.same = same
        super().__init__(*args, **kwargs)
        self.reference = own(self.model)
        self.pairs: list[tuple[float, float]] = []
        self.gaps: list[float] = []
        self.clipped = 0.0
        self.capped = False

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
        made = super()._calculate_rewards(*args, **kwargs)
        self.rewards = made[:, 0]
        return made

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        made = super()._generate_and_score_completions(inputs)
        rollouts = list(self._rollouts)
        lengths = torch.tensor([r.length for r in rollouts])
        groups = Groups.of([number // self.num_generations for number in range(len(rollouts))])
        credited = self.same.own.assign(
            ScoredBatch(groups, self.rewards, lengths, lengths, lengths < 0, lambda value, _: value)
        )
        parts = zip(
            rollouts,
            credited.advantages.split(lengths.tolist(), dim=-1),
            self.scored(own(self.model), rollouts).log_prob.detach().split(lengths.tolist()),
            self.scored(self.reference, rollouts).log_prob.detach().split(lengths.tolist()),
            strict=True,
        )
        self.samples = {r.key: Sample(r, gains, before, at_first) for r, gains, before, at_first in parts}
        return made

    def scored(self, lm: Any, rollouts: list[Rollout]) -> TokenScores:
        scores: TokenScores = ScoringModel(lm)(pack(rollouts), self.temperature, self.exploration)
        return scores

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        found = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        samples = [self.samples[self.key(inputs, row)] for row in range(len(inputs["advantages"]))]
        lm = own(model)
        scores = self.scored(lm, [sample.rollout for sample in samples])
        totals = self.same.totals(batch_totals(samples, lambda value, _: value), inputs)
        lengths = torch.tensor([sample.rollout.length for sample in samples])
        output = self.same.own.loss(loss_inputs(samples, scores, lengths), totals)
        expected = torch.autograd.grad(output.loss, list(lm.parameters()))
        self.pairs.append((loss.item(), output.loss.item()))
        self.clipped += float(output.sums.clipped)
        if self.beta:
            before = torch.cat([sample.ref_log_prob for sample in samples])
            self.capped |= bool((uncapped(scores.log_prob, before, scores.log_prob) > 10).any())
        largest = max(part.abs().max() for part in expected)
        self.gaps.append(max(((a - b).abs().max() / largest).item() for a, b in zip(found, expected, strict=True)))
        return loss

    def key(self, inputs: dict[str, Any], row: int) -> int:
        """Of a row's rollout, by its tokens and, where some have the same, the keys of its record."""
        shown = inputs["completion_ids"][row][inputs["completion_mask"][row].bool()].tolist()
        prompt = inputs["prompt_ids"][row][inputs["prompt_mask"][row].bool()].tolist()
        keys = set(inputs["exploration_keys"][row].tolist()) - {0}
        alike = [
            key
            for key, sample in self.samples.items()
            if sample.rollout.response_ids.tolist() == shown
            and sample.rollout.prompt_ids.tolist() == prompt
            and (not keys or key in keys)
        ]
        return alike[0]  # any of several: without a mixture, they are equal in all that counts


def own(model: Any) -> Any:
    """A copy that this project's scoring model takes."""
    lm = copy.deepcopy(model)
    lm.set_attn_implementation(IMPLEMENTATION)
    lm.forward = type(lm).forward.__get__(lm)  # without what TRL has put there
    return lm


@pytest.mark.parametrize("case", CASES)
def test_eight_steps_have_the_loss_and_the_gradient_of_this_projects_algorithm(
    case: str, problems: Any, settings: Any
) -> None:
    args = settings(max_steps=8, num_iterations=2, max_completion_length=LENGTH, **CASES[case].trl)
    reward = TextReward()
    trainer = Compared(CASES[case], str(MODEL_PATH), reward, args, problems, exploration=NeighborMixing(rate=0.9))
    trainer.train()
    reward.close()
    assert len(trainer.pairs) == 8
    for theirs, ours in trainer.pairs:
        assert theirs == pytest.approx(ours, abs=2e-6)
    assert max(trainer.gaps) < 1e-5
    assert any(abs(theirs) > 1e-3 for theirs, _ in trainer.pairs)
    assert trainer.clipped > 0
    assert trainer.capped == (case == "grpo far from the reference")
