"""Reward, Pass@k, lengths and speed of the training rollouts."""

from lightning import Callback, LightningModule, Trainer

from ngrpo.algo.advantage import is_dead
from ngrpo.data.types import PromptBatch
from ngrpo.evaluation.estimators import pass_at_k
from ngrpo.evaluation.ks import powers_of_two
from ngrpo.rollout.experience import Experience


class RolloutMetrics(Callback):
    """Logs, for each iteration and over all ranks, what the groups of rollouts look like (``train/*``, ``rollout/*``).

    ``train/zero_signal`` is the fraction of groups whose rewards are all equal: they move nothing under a
    group-relative advantage.
    """

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Logs; runs after the rollout callback."""
        metrics = group_metrics(batch.experience) | rollout_metrics(batch.experience)
        pl_module.log_dict(metrics, sync_dist=trainer.world_size > 1, batch_size=1)


def group_metrics(experience: Experience) -> dict[str, float]:
    """Returns reward, Pass@k, zero-signal fraction and the number of distinct answers a group."""
    size = experience.group_size
    solved = experience.correct.sum(-1)
    answers = [s.answer for s in experience.scores]
    groups = [answers[i : i + size] for i in range(0, len(answers), size)]
    passes = {f"train/pass@{k}": float(pass_at_k(size, solved, k).mean()) for k in powers_of_two(size)}
    return {
        "train/reward": float(experience.rewards.nanmean()),
        "train/mean@1": float(experience.correct.float().mean()),
        **passes,
        "train/zero_signal": float(is_dead(experience.rewards).float().mean()),
        "train/distinct_answers": sum(len(set(group)) for group in groups) / len(groups),
    }


def rollout_metrics(experience: Experience) -> dict[str, float]:
    """Returns lengths, truncation, verdicts and time."""
    lengths = [r.length for r in experience.rollouts]
    statuses = [s.status for s in experience.scores]
    verdicts = {f"reward/{status}": statuses.count(status) / len(statuses) for status in type(statuses[0])}
    return {
        "rollout/length_mean": sum(lengths) / len(lengths),
        "rollout/length_max": float(max(lengths)),
        "rollout/truncated": float(experience.truncated.float().mean()),
        "rollout/tokens_per_s": experience.tokens / experience.generate_s,
        "time/generate_s": experience.generate_s,
        "time/reward_s": experience.reward_s,
        **verdicts,
    }
