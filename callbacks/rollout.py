"""The rollout callback: scored rollouts before each update, weights to the engine after it."""

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from lightning import Callback, Trainer
from torch import Tensor

from ngrpo.checkpoint.folders import how_to_resume
from ngrpo.distributed.collectives import from_first, gathered, ranks, world_size
from ngrpo.rewards.terms.base import Stateful
from ngrpo.rollout.continuous_refill import ReplayedDraw
from ngrpo.rollout.dynamic_sampling import DynamicSampling, GroupSelection, rank_share
from ngrpo.rollout.engine import MeasuredEngine, StreamingEngine
from ngrpo.rollout.prefetch import Prefetch
from ngrpo.rollout.recovery import EngineFailure
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.training.metric_logging import over_ranks
from ngrpo.training.module import PolicyOptimization
from ngrpo.training.run_length import RunLength
from ngrpo.types.experience import Experience
from ngrpo.types.problems import Prompt, PromptBatch

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Restored:
    """What an interrupted run had: tables that may be older than the weights, prefetched rollouts, states of rewards.

    The states are those of all data ranks; of an earlier version there are none.
    """

    tables: dict[str, Tensor]
    prefetched: list[Tensor]
    reward_states: list[dict[str, Any]]


class RolloutCallback(Callback):
    """Drives generation: the batch that reaches the training step carries scored rollouts.

    Counts iterations, tokens and problems with an unusable reference over resumes, and ends the training when the run
    is as long as it should be. Tokens are those of all responses of all ranks, dropped ones too
    (``rollout/generated_tokens``).

    The first rank of a tensor group makes rollouts, and the others get them.

    Args:
        worker: makes and scores rollouts on this rank.
        run_length: when the run is over.
        selection: which groups are worth training on, and how often the others are replaced; ``sampling/*`` tells what
            came of it.
        run_dir: the run's folder, for what is said when the run ends.
    """

    def __init__(
        self, worker: RolloutWorker, run_length: RunLength, selection: DynamicSampling, run_dir: Path | None = None
    ) -> None:
        self.run_dir = run_dir
        self.worker = worker
        self.run_length = run_length
        self.selection = selection
        self.prefetch = Prefetch(self._resume_hint)
        self.iterations_done = 0
        self.tokens_generated = 0
        self.unparsable_references = 0
        self._unparsable_here = 0
        self._restored: _Restored | None = None

    def on_train_start(self, trainer: Trainer, pl_module: PolicyOptimization) -> None:
        """Starts the engine with the policy's weights, and with the tables and rollouts of an interrupted run.

        One that has made all its iterations goes on to its end: evaluation, export, summary, report.
        """
        pl_module.offload_optimizers()
        self.worker.start(pl_module.device)
        self.worker.weights, self.worker.how_to_resume = pl_module.weights, self._resume_hint
        # An adapter that adds zero may still change the sign of a zero.
        loaded = trainer.ckpt_path is None and pl_module.source.lora is None
        tables = None if self._restored is None else self._restored.tables
        self.worker.transfer(refresh=True, finished=self.iterations_done, loaded=loaded, tables=tables)
        if self._restored is not None:
            self.prefetch.load_state_dict(self._restored.prefetched, ranks().data_rank)
            if self._restored.reward_states:
                self.worker.load_reward_state(self._restored.reward_states[ranks().data_rank])
        self._follow_length(trainer, pl_module)
        if trainer.should_stop and self.iterations_done < self.run_length.iterations:
            log.warning(
                "trainer.max_generated_tokens=%s is reached already, with %d tokens; raise it to train on",
                self.run_length.max_generated_tokens,
                self.tokens_generated,
            )

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: PolicyOptimization, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Generates, selects and scores; then gives the engine's memory to the update, or starts on the next batch."""
        prefetched = from_first(lambda: self.prefetch.take(batch.iteration))
        if prefetched is None and self._refills_continuously():
            selected = self._refilled(batch)
        else:
            selected = self._selected_in_rounds(batch, prefetched)
        # Those of dropped groups too: that they taught nothing is what a curriculum learns from.
        batch.report_pass_rates([rate for rates in gathered(selected.pass_rates) for rate in rates])
        self.worker.observe(selected.generated)
        self._unparsable_here = selected.unparsable_references

        if isinstance(self.worker.engine, MeasuredEngine):
            pl_module.log_dict(self.worker.engine.figures(), batch_size=1)
        if self.worker.settings.ahead:
            # Of all ranks, since callbacks decide by it: one whose engine failed makes its part with the new weights.
            pl_module.log("rollout/age", mean(gathered(float(prefetched is not None))), batch_size=1)
            self._start_prefetch(batch)
        else:
            self.worker.sleep()

        batch.experience = self.worker.shape_rewards(selected.experience)
        batch.prompts = batch.experience.prompts
        if self.selection.max_refills:
            pl_module.log_dict(_sampling_metrics(trainer, selected), batch_size=1)

    def _refills_continuously(self) -> bool:
        """Says whether further prompts may start before a round has ended.

        Several ranks would have to talk more often, a reward with a state must get its answers in a fixed order, and
        trees grow in rounds of their own.
        """
        selection, worker = self.selection, self.worker
        wanted = selection.max_refills > 0 and selection.by_group and world_size() == 1
        wanted = wanted and worker.settings.scheduler.one_round
        return wanted and isinstance(worker.engine, StreamingEngine) and not isinstance(worker.reward, Stateful)

    def _selected_in_rounds(self, batch: PromptBatch, prefetched: Experience | None) -> GroupSelection:
        """Generates the batch, and replaces dropped groups in rounds."""
        first = self._generate(batch.prompts, batch.iteration, prefetched)
        assert first is not None  # every rank has prompts
        selected = GroupSelection(first, self.selection.keep)
        while selected.refills < self.selection.max_refills and any(missing := gathered(selected.missing)):
            further = rank_share(batch.draw(sum(map(len, missing))), missing, ranks().data_rank)
            selected.refill(self._generate(further, batch.iteration))
        return selected

    def _refilled(self, batch: PromptBatch) -> GroupSelection:
        """Makes what `_selected_in_rounds` makes, without waiting for the slowest response of a round."""
        drawn = ReplayedDraw(batch.draw)
        first, *further = self.worker.recovered(
            lambda: self.worker.roll_out_refilled(batch.prompts, batch.iteration, drawn.from_start(), self.selection)
        )
        selected = GroupSelection(first, self.selection.keep)
        for experience in further:
            selected.refill(experience)
        return selected

    def _generate(
        self, prompts: list[Prompt], iteration: int, prefetched: Experience | None = None
    ) -> Experience | None:
        """Makes rollouts unless they are there; None of no prompts (a collective, also where another rank has some)."""

        def make() -> Experience | None:
            return self.worker.roll_out(prompts, iteration) if prompts else None

        return self.worker.recovered(lambda: prefetched or make())

    def _start_prefetch(self, batch: PromptBatch) -> None:
        """Has the next batch made beside the update, with the weights before it."""
        if batch.iteration + 1 >= self.run_length.iterations:
            return
        following = batch.peek_next()
        if ranks().first:
            self.prefetch.start(
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
        try:
            self.prefetch.wait()
        except EngineFailure as failure:
            self.worker.lose(str(failure))
        waited = time.perf_counter()
        pl_module.offload_optimizers()
        every = self.worker.exploration.refresh_every
        self.worker.transfer(refresh=every > 0 and self.iterations_done % every == 0, finished=self.iterations_done)
        seconds = {"time/wait_s": waited - start, "time/sync_s": time.perf_counter() - waited}
        tokens = {
            "rollout/generated_tokens": float(self.tokens_generated),
            "rollout/wasted_tokens": float(_total(trainer, self.worker.wasted_tokens())),
        }
        pl_module.log_dict(seconds | tokens, batch_size=1)
        self._follow_length(trainer, pl_module)

    def _follow_length(self, trainer: Trainer, module: PolicyOptimization) -> None:
        """Ends a run that is as long as it should be; else the learning rate follows the tokens."""
        module.follow_tokens(self.run_length.token_share(self.tokens_generated))
        if self.run_length.reached(self.iterations_done, self.tokens_generated):
            trainer.should_stop = True

    def _resume_hint(self) -> str:
        """Returns a clause that says how to resume the run."""
        return how_to_resume(self.run_dir) if self.run_dir else "nothing was saved"

    def state_dict(self) -> dict[str, Any]:
        """Returns counts, states of rewards and of the scheduler, tables and prefetched rollouts (a collective).

        Tables and rollouts are of weights that may no longer exist. Every rank calls rewards of its own on rollouts of
        its own, so there is a state for each. The keys are those of version 0.1, ``reward_states`` and ``scheduler``.
        """
        return {
            "iterations_done": self.iterations_done,
            "tokens_generated": self.tokens_generated,
            "unparsable_references": self.unparsable_references,
            "reward_terms": self.worker.terms.state_dict(),
            "reward_states": gathered(self.worker.reward_state()),
            "scheduler": self.worker.scheduler_state(),
            "tables": self._tables_in_use(),
            "made_ahead": self.prefetch.state_dict() if self.worker.settings.ahead else [],
        }

    def _tables_in_use(self) -> dict[str, Tensor]:
        if not ranks().first:  # which has no engine; rank 0 saves
            return {}
        return {name: table.cpu() for name, table in self.worker.bound.tables.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self.iterations_done = state_dict["iterations_done"]
        self.tokens_generated = state_dict["tokens_generated"]
        self.unparsable_references = state_dict["unparsable_references"]
        self.worker.terms.load_state_dict(state_dict["reward_terms"])
        self.worker.load_scheduler_state(state_dict.get("scheduler", {}))  # not in those of version 0.1
        states = state_dict.get("reward_states", [])  # not in those of version 0.1
        self._restored = _Restored(state_dict["tables"], state_dict["made_ahead"], states)


def rollout_callback(trainer: Trainer) -> RolloutCallback:
    """Returns the one of a run, which counts its iterations and tokens."""
    return next(callback for callback in trainer.callbacks if isinstance(callback, RolloutCallback))


def _total(trainer: Trainer, value: int) -> int:
    """Adds up over the ranks."""
    return int(over_ranks(trainer, torch.tensor(value), "sum"))


def _sampling_metrics(trainer: Trainer, selected: GroupSelection) -> dict[str, Tensor]:
    """Returns what dynamic sampling came to, over all ranks."""
    own = torch.tensor([selected.groups_generated, selected.groups_kept, selected.correct_answers])
    generated, kept, correct = over_ranks(trainer, own, "sum")
    return {
        "sampling/generated": generated,
        "sampling/kept": kept,
        "sampling/correct": correct / (generated * selected.group_size),
        "sampling/refills": torch.tensor(float(selected.refills)),
    }
