"""Rollouts before each update, weights to the engine after it."""

import time
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer

from ngrpo.checkpoint.folders import how_to_resume
from ngrpo.distributed.collectives import from_first, gathered, ranks
from ngrpo.errors import RunError
from ngrpo.rollout.dynamic_sampling import DynamicSampling, Selection, own_share, select
from ngrpo.rollout.prefetch import NextBatch
from ngrpo.rollout.recovery import EngineFailure, recovered
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.training.metric_logging import over_ranks
from ngrpo.training.module import PolicyOptimization
from ngrpo.types.experience import Experience
from ngrpo.types.problems import PassRate, Prompt, PromptBatch
from ngrpo.types.scores import Verdict


class RolloutCallback(Callback):
    """Drives generation: the batch that reaches the training step carries scored rollouts.

    Counts iterations, tokens and problems with an unusable reference over resumes, and ends the training after
    ``iterations``.

    The first rank of a tensor group makes rollouts, and the others get them.

    Args:
        worker: makes and scores rollouts on this rank.
        iterations: rollout batches to train on, those before a resume included.
        selection: which groups are worth training on, and how often the others are replaced; ``sampling/*`` tells what
            came of it.
        run_dir: the run's folder, for what is said when the run ends.
    """

    def __init__(
        self, worker: RolloutWorker, iterations: int, selection: DynamicSampling, run_dir: Path | None = None
    ) -> None:
        self.run_dir = run_dir
        self.worker = worker
        self.iterations = iterations
        self.selection = selection
        self.iterations_done = 0
        self.tokens_generated = 0
        self.unparsable_references = 0
        self._unparsable_here = 0
        self._tables: dict[str, torch.Tensor] | None = None
        self._made_ahead: list[torch.Tensor] = []
        self._age = 0
        self.next_batch = NextBatch()

    def on_train_start(self, trainer: Trainer, pl_module: PolicyOptimization) -> None:
        """Starts the engine with the policy's weights, and with the tables and rollouts of an interrupted run.

        One that has made all its iterations goes on to its end: evaluation, export, summary, report.
        """
        pl_module.offload_optimizers()
        self.worker.start(pl_module.device)
        # An adapter that adds zero may still change the sign of a zero.
        loaded = trainer.ckpt_path is None and pl_module.source.lora is None
        try:
            self._sync(pl_module, refresh=True, loaded=loaded)
        except EngineFailure as failure:
            raise RunError(
                f"the rollout engine does not take the policy's weights ({failure}); choose another model, or another "
                "engine such as rollout=torch."
            ) from failure
        if self._tables is not None:
            self.worker.restore_tables(self._tables)
        if self._made_ahead:
            self.next_batch.load_state_dict(self._made_ahead, ranks().data_rank)
        if self.iterations_done >= self.iterations:  # of a run that was killed after its last checkpoint
            trainer.should_stop = True

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: PolicyOptimization, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Generates, scores and selects; then gives the engine's memory to the update, or goes on to the next batch."""
        selected = self._select(trainer, pl_module, batch)
        if self.worker.settings.ahead:
            self._begin_next(pl_module, batch)
        else:
            self.worker.engine.sleep()
        batch.experience = self.worker.shaped(selected.experience)
        batch.prompts = batch.experience.prompts
        if self.selection.max_refills:
            pl_module.log_dict(_sampling_figures(trainer, selected, batch.experience.group_size), batch_size=1)

    def _select(self, trainer: Trainer, module: PolicyOptimization, batch: PromptBatch) -> Selection:
        def rebuild(failed: bool) -> None:
            self.worker.rebuild(module.policy_weights(), module.learned_exploration(), failed)

        def roll_out(prompts: list[Prompt]) -> Experience | None:
            def fresh() -> Experience | None:
                return self.worker.roll_out(prompts, batch.iteration) if prompts and ranks().first else None

            made = from_first(lambda: self.next_batch.take(batch.iteration))
            self._age = int(made is not None)
            if made is None:
                own = recovered(fresh, rebuild, how_to_resume(self.run_dir) if self.run_dir else "nothing was saved")
                made = from_first(lambda: own)
            if made is not None:
                self._unparsable_here += _unparsable(made)
                rates.extend(made.pass_rates)
            return made

        def share(missing: int) -> list[Prompt] | None:
            return own_share(gathered(missing), ranks().data_rank, batch.draw)

        self._unparsable_here = 0
        rates: list[PassRate] = []
        selected = select(batch.prompts, self.selection, roll_out, share)
        # Those of groups that were not selected too: that they taught nothing is what a curriculum learns from.
        batch.report([rate for own in gathered(rates) for rate in own])
        return selected

    def _begin_next(self, module: PolicyOptimization, batch: PromptBatch) -> None:
        """Makes the next batch beside the update, with the weights before it; logs the age of the present one."""
        module.log("rollout/age", float(self._age), batch_size=1)
        if batch.iteration + 1 >= self.iterations:
            return
        following = batch.following()
        if ranks().first:
            _ = self.worker.bound  # its tables are built here, not in the thread
            self.next_batch.begin(
                following.iteration, lambda: self.worker.roll_out(following.prompts, following.iteration)
            )

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: PolicyOptimization,
        outputs: Any,
        batch: PromptBatch,
        batch_idx: int,
    ) -> None:
        """Wakes the engine with the new weights; the tables follow every ``exploration.refresh_every`` updates."""
        self.iterations_done = batch.iteration + 1
        self.tokens_generated += _total(trainer, batch.experience.tokens)
        self.unparsable_references += _total(trainer, self._unparsable_here)
        start = time.perf_counter()
        self.next_batch.wait()
        waited = time.perf_counter()
        pl_module.offload_optimizers()
        self.worker.engine.wake()
        every = self.worker.exploration.refresh_every
        self._sync(pl_module, refresh=every > 0 and self.iterations_done % every == 0)
        seconds = {"time/wait_s": waited - start, "time/sync_s": time.perf_counter() - waited}
        pl_module.log_dict(seconds, batch_size=1)
        if self.iterations_done >= self.iterations:
            trainer.should_stop = True

    def _sync(self, module: PolicyOptimization, refresh: bool, loaded: bool = False) -> None:
        self.worker.sync_weights(module.policy_weights(), refresh, module.learned_exploration(), loaded)

    def state_dict(self) -> dict[str, Any]:
        """Holds the counts, what reward terms remember, the tables, which may be older than the weights, and rollouts.

        Those were made ahead with weights that no longer exist (a collective).
        """
        return {
            "iterations_done": self.iterations_done,
            "tokens_generated": self.tokens_generated,
            "unparsable_references": self.unparsable_references,
            "reward_terms": self.worker.terms.state_dict(),
            "tables": self._tables_in_use(),
            "made_ahead": self.next_batch.state_dict() if self.worker.settings.ahead else [],
        }

    def _tables_in_use(self) -> dict[str, torch.Tensor]:
        if not ranks().first:  # which has no engine; rank 0 saves
            return {}
        return {name: table.cpu() for name, table in self.worker.bound.tables.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` held."""
        self.iterations_done = state_dict["iterations_done"]
        self.tokens_generated = state_dict["tokens_generated"]
        self.unparsable_references = state_dict["unparsable_references"]
        self.worker.terms.load_state_dict(state_dict["reward_terms"])
        self._tables = state_dict["tables"]
        self._made_ahead = state_dict["made_ahead"]


def _total(trainer: Trainer, value: int) -> int:
    """Adds up over the ranks."""
    return int(over_ranks(trainer, torch.tensor(value), "sum"))


def _sampling_figures(trainer: Trainer, selected: Selection, group_size: int) -> dict[str, torch.Tensor]:
    own = torch.tensor([selected.generated, selected.kept, selected.correct])
    generated, kept, correct = over_ranks(trainer, own, "sum")
    return {
        "sampling/generated": generated,
        "sampling/kept": kept,
        "sampling/correct": correct / (generated * group_size),
        "sampling/refills": torch.tensor(float(selected.refills)),
    }


def _unparsable(experience: Experience) -> int:
    """Counts the problems whose reference no answer could be compared with."""
    size = experience.group_size
    statuses = [score.status for score in experience.scores]
    groups = (statuses[start : start + size] for start in range(0, len(statuses), size))
    return sum(Verdict.UNPARSABLE_REFERENCE in group for group in groups)
