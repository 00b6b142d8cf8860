"""Reward, Pass@k, lengths and speed of the training rollouts."""

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from ngrpo.algo.advantage import is_dead
from ngrpo.evaluation.estimators import pass_at_k
from ngrpo.evaluation.ks import powers_of_two
from ngrpo.rewards.terms.base import CORRECTNESS, LEFT_OUT
from ngrpo.training.metric_logging import log_extreme, log_means, over_ranks
from ngrpo.types.experience import Experience
from ngrpo.types.problems import PromptBatch
from ngrpo.types.scores import Verdict


class RolloutMetrics(Callback):
    """Logs, for each iteration and over all ranks, what the groups of rollouts look like (``train/*``, ``rollout/*``).

    ``train/zero_signal`` is the fraction of groups whose rewards are all equal: they move nothing under a
    group-relative advantage. ``reward/correctness`` and ``reward/<term>`` are the weighted summands of
    ``train/reward``, ``reward/<verdict>`` are fractions, and so is ``reward/left_out``: responses that have no reward,
    or an infinite one, and take no part in the loss. ``rollout/tokens_per_s`` is that of all ranks together. Lengths
    are of what was generated, without a prefix that was given, whose tokens are ``rollout/given_mean``. The groups are
    those trained on, after selection. ``rollout/tokens_per_response`` is what a response of them cost: all tokens that
    were generated for the batch, those that several responses have in common once, dropped groups and branches
    included. ``rollout/branch_depth`` is how often responses forked on their way.
    """

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Logs; runs after the rollout callback."""
        experience: Experience = batch.experience
        lengths = torch.tensor([r.generated for r in experience.rollouts])
        values = group_values(experience) | rollout_values(experience) | reward_values(experience)
        log_means(trainer, pl_module, values)
        log_extreme(trainer, pl_module, "rollout/length_max", lengths.double(), "max")
        tokens = over_ranks(trainer, torch.tensor(experience.tokens), "sum")
        slowest = over_ranks(trainer, torch.tensor(experience.generate_s), "max")
        pl_module.log("rollout/tokens_per_s", tokens / slowest, batch_size=1)


def group_values(experience: Experience) -> dict[str, Tensor]:
    """Returns the values whose means are reward, Pass@k, zero-signal fraction and distinct answers a group."""
    size = experience.group_size
    solved = experience.correct.sum(-1)
    answers = [s.answer for s in experience.scores]
    groups = [answers[i : i + size] for i in range(0, len(answers), size)]
    return {
        "train/reward": experience.rewards,
        "train/mean@1": experience.correct,
        **{f"train/pass@{k}": pass_at_k(size, solved, k) for k in powers_of_two(size)},
        "train/zero_signal": is_dead(experience.rewards),
        "train/distinct_answers": torch.tensor([len(set(group) - {None}) for group in groups]),
    }


def rollout_values(experience: Experience) -> dict[str, Tensor]:
    """Returns the values whose means are length, truncation and time."""
    return {
        "rollout/length_mean": torch.tensor([r.generated for r in experience.rollouts]),
        "rollout/given_mean": torch.tensor([r.prefix_length for r in experience.rollouts]),
        "rollout/truncated": experience.truncated,
        "rollout/tokens_per_response": torch.tensor(experience.tokens / len(experience.rollouts)),
        "rollout/branch_depth": torch.tensor([0 if r.path is None else r.path.depth for r in experience.rollouts]),
        "time/generate_s": torch.tensor(experience.generate_s),
        "time/reward_s": torch.tensor(experience.reward_s),
    }


def reward_values(experience: Experience) -> dict[str, Tensor]:
    """Returns the values whose means are the reward's summands, the verdicts and what is left out."""
    verdicts = {f"reward/{v}": torch.tensor([s.status is v for s in experience.scores]) for v in Verdict}
    terms = {CORRECTNESS: experience.correctness, **experience.terms}
    left_out = {f"reward/{LEFT_OUT}": experience.rewards.isnan()}
    return verdicts | left_out | {f"reward/{name}": values for name, values in terms.items()}
