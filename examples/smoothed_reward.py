"""A callback of your own with a curve and a state: the reward, smoothed over the iterations of the whole run."""

from typing import Any

from lightning import Callback, LightningModule, Trainer


class SmoothedReward(Callback):
    """Logs ``train/reward_smoothed``; its state is in the checkpoint, so a resumed run goes on with it."""

    def __init__(self, keep: float = 0.9) -> None:
        self.keep = keep
        self.value: float | None = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """``batch.experience.rewards`` is [prompts, group]: the rollouts of this process, with nan for no reward."""
        reward = float(trainer.strategy.reduce(batch.experience.rewards.nanmean(), reduce_op="mean"))
        self.value = reward if self.value is None else self.keep * self.value + (1 - self.keep) * reward
        pl_module.log("train/reward_smoothed", self.value, batch_size=1)

    def state_dict(self) -> dict[str, Any]:
        """Saved in every checkpoint."""
        return {"value": self.value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Called when a run is resumed."""
        self.value = state_dict["value"]
