"""A run of six iterations as the terminal is told of it, made of the product's own display and a stand-in trainer.

    python shown_run.py [--terminal DEVICE] [--encoding utf-8] [--widths 80,120] [--rank 1] [--done 3]

Each iteration has the next of the widths. In the middle of the second one a library warns.
"""

import argparse
import logging
import os
import time
import warnings
from types import SimpleNamespace

import rich
import torch
from fake_run import batch, trainer
from lightning.pytorch.utilities import rank_zero_only
from rich import get_console
from terminal import become, resize

from ngrpo.callbacks.evaluation import Evaluation
from ngrpo.callbacks.progress import ProgressReport
from ngrpo.callbacks.rollout import RolloutCallback
from ngrpo.entrypoints.console import ConsoleHandler
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.training.run_length import RunLength

ITERATIONS = 6
RATES: dict[str, list[float]] = {"": []}


def main() -> None:
    """Shows the run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--widths", type=lambda text: [int(width) for width in text.split(",")], default=[])
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--done", type=int, default=0)
    parser.add_argument("--terminal", default=None)
    parser.add_argument("--encoding", default="utf-8")
    asked = parser.parse_args()
    rank_zero_only.rank = asked.rank
    if asked.terminal is None:
        rich.reconfigure()
    else:
        for name in ("COLUMNS", "LINES"):  # pytest-xdist sets them, and they would stand above the terminal's own size
            os.environ.pop(name, None)
        become(asked.terminal, asked.encoding)
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[ConsoleHandler()])
    show(asked)


def show(asked: argparse.Namespace) -> None:
    """Calls the hooks as a trainer does."""
    length = RunLength(ITERATIONS)
    rollouts = RolloutCallback(None, length, None)  # type: ignore[arg-type]
    rollouts.iterations_done, rollouts.tokens_generated = asked.done, 1000 * asked.done
    evaluation = Evaluation(None, SimpleNamespace(eval_prompts=list), None)  # type: ignore[arg-type]
    evaluation.results.append(result(0))
    run = trainer(callbacks=[rollouts, evaluation])
    run.is_global_zero = asked.rank == 0
    run.callback_metrics |= {
        "train/reward": torch.tensor(0.541), "train/pass@8": torch.tensor(0.981), "policy/loss": torch.tensor(0.01321),
        "policy/entropy": torch.tensor(0.3119), "rollout/tokens_per_s": torch.tensor(1234.0),
    }  # fmt: skip
    shown = ProgressReport(length, SimpleNamespace(observer=None))  # type: ignore[arg-type]
    shown.setup(run, None, "fit")  # type: ignore[arg-type]
    shown.on_train_start(run, None)  # type: ignore[arg-type]
    for iteration in range(asked.done, ITERATIONS):
        if asked.widths:
            resize(1, asked.widths[iteration % len(asked.widths)])
        shown.on_train_batch_start(run, None, batch(iteration), 0)  # type: ignore[arg-type]
        time.sleep(0.3)
        if iteration == asked.done + 1:
            warnings.warn("a library warns", stacklevel=1)
            logging.getLogger("ngrpo").warning("the program warns")
        rollouts.tokens_generated += 1000
        if iteration == 3:
            evaluation.results.append(result(4))
        shown.on_train_batch_end(run, None, None, batch(iteration, SimpleNamespace(group_size=8)), 0)  # type: ignore[arg-type]
        if shown._live is not None:
            shown._live.refresh()
    shown.on_train_end(run, None)  # type: ignore[arg-type]
    get_console().print("the end")


def result(iteration: int) -> EvaluationResult:
    """An evaluation whose Pass@1 is its mean."""
    mean = 0.366 + iteration * 0.04375
    return EvaluationResult(iteration, {"mean@1": mean, "pass@1": mean, "pass@16": 0.95}, RATES)


if __name__ == "__main__":
    main()
