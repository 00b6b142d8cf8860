"""The jobs of a study and the folders that they write; what is finished stays, so that a second call continues."""

import math
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ngrpo.errors import RunError
from ngrpo.evaluation.answer_store import AnswerStore
from ngrpo.evaluation.answer_table import answers_of
from ngrpo.evaluation.benchmark_report import report
from ngrpo.evaluation.ks import powers_of_two
from ngrpo.study.definition import ProblemSetConfig, StudyConfig
from ngrpo.study.results import RESULT, AnswerStatistics, RateChoice, RateTrial, RunResult, read, write
from ngrpo.study.run_metrics import answer_statistics, curves
from ngrpo.study.scheduler import CommandRunner, Job
from ngrpo.training.run_length import RunLength
from ngrpo.utils.atomic_write import remove
from ngrpo.utils.provenance import git_commit

_BENCHMARK = "custom"
_NO_NAME = re.compile(r"[^\w.-]+")
_TRAIN, _EVALUATE = "ngrpo.entrypoints.train_command", "ngrpo.entrypoints.evaluate_command"


class StudyJobs:
    """The jobs of a study that are not done yet.

    Args:
        study: what it consists of.
        out: its folder: ``base/``, ``tune/ARM/RATE/``, ``runs/ARM/RATE/seed-N/`` with a ``result.json`` each when
            finished.
        folder: ``--config-dir`` of its runs.
    """

    def __init__(self, study: StudyConfig, out: Path, folder: Path | None = None) -> None:
        self.study = study
        self.out = out.absolute()
        self._options = [] if folder is None else [f"--config-dir={folder.absolute()}"]

    def model_job(self) -> list[Job]:
        """Returns the job that makes the model, if there is one to make."""
        maker, folder = self.study.make_model, Path(self.study.base_model)
        if not maker or (folder / "config.json").exists():
            return []

        def run(runner: CommandRunner) -> None:
            runner.run(python(*maker), self.out / "make_model.log")

        return [Job("model", run)]

    def base_job(self) -> list[Job]:
        """Returns the job that evaluates the untrained model, unless that is done."""
        folder = self.out / "base"

        def run(runner: CommandRunner) -> None:
            self._evaluate(runner, self.study.base_model, folder, self.study.test)
            write(folder / RESULT, self._statistics(folder))
            self._remove_files(folder)

        return [] if (folder / RESULT).exists() else [Job("base", run)]

    def tune_jobs(self) -> list[Job]:
        """Returns the jobs of the rates that were not tried yet, the arms in turn."""
        return [
            self._tune_job(arm, rate, strength)
            for rate in self.study.tune.rates
            for arm in self.study.arms
            for strength in self._strengths(arm)
            if not (self.rate_folder(arm, rate, strength) / RESULT).exists()
        ]

    def _tune_job(self, arm: str, rate: float, strength: str | None) -> Job:
        folder, tune = self.rate_folder(arm, rate, strength), self.study.tune
        length = RunLength(tune.iterations, tune.generated_tokens)

        def run(runner: CommandRunner) -> None:
            self._train(runner, folder, self.train_settings(arm, tune.seed, rate, length, strength), length)
            self._evaluate(runner, str(folder / "train" / "model"), folder, tune.validation)
            table = self._store(folder).table()
            found = report(answers_of(table), powers_of_two(tune.validation.samples))
            metrics = {name: one.value for name, one in found.metrics.items()}
            write(folder / RESULT, RateTrial(rate, metrics, strength))
            self._remove_files(folder)

        return Job(f"tune {arm} {_place(rate, strength)}", run, kind=arm)

    def rate_choices(self) -> dict[str, RateChoice]:
        """Returns the choice of each arm of which all rates were tried."""
        found = {}
        for arm in self.study.arms:
            grid = [(rate, strength) for rate in self.study.tune.rates for strength in self._strengths(arm)]
            files = [self.rate_folder(arm, *one) / RESULT for one in grid]
            if all(file.exists() for file in files):
                trials = [RateTrial(**read(file)) for file in files]
                best = choice(trials, self.study.tune.metric)
                found[arm] = RateChoice(best.rate, trials, best.strength)
        return found

    def run_jobs(self, rates: dict[str, RateChoice]) -> list[Job]:
        """Returns the runs that are not finished yet, seed by seed so that all arms grow alike.

        Raises:
            RunError: an arm has no learning rate yet.
        """
        missing = [arm for arm in self.study.arms if arm not in rates]
        if missing:
            raise RunError(f"{', '.join(missing)} have no learning rate yet; run the stage tune first.")
        seeds = range(max(arm.seeds for arm in self.study.arms.values()))
        return [
            self._run_job(arm, seed, rates[arm])
            for seed in seeds
            for arm, settings in self.study.arms.items()
            if seed < settings.seeds and not (self.run_folder(arm, rates[arm], seed) / RESULT).exists()
        ]

    def _run_job(self, arm: str, seed: int, chosen: RateChoice) -> Job:
        folder = self.run_folder(arm, chosen, seed)
        length = RunLength(self.study.iterations, self.study.generated_tokens)
        settings = self.train_settings(arm, seed, chosen.chosen, length, chosen.strength)

        def run(runner: CommandRunner) -> None:
            seconds = {"train": self._train(runner, folder, settings, length)}
            model = str(folder / "train" / "model")
            seconds["evaluate"] = self._evaluate(runner, model, folder, self.study.test)
            summary = read(folder / "train" / "summary.json")
            result = RunResult(
                arm=arm,
                seed=seed,
                rate=chosen.chosen,
                settings=settings,
                iterations=summary["iterations"],
                test=self._statistics(folder),
                curves=curves(folder / "train"),
                seconds={name: round(value, 1) for name, value in seconds.items()},
                device=runner.device_name(),
                commit=git_commit(),
                date=time.strftime("%Y-%m-%d"),
                tokens=summary["tokens_generated"],
                versions=summary["versions"],
            )
            write(folder / RESULT, result)
            self._remove_files(folder)

        return Job(f"run {arm} seed {seed}", run, kind=arm)

    def train_settings(
        self, arm: str, seed: int, rate: float, length: RunLength, strength: str | None = None
    ) -> list[str]:
        """Returns the settings of a training run; what all arms share comes first."""
        study = self.study
        own = [f"seed={seed}", f"trainer.iterations={length.iterations}", f"trainer.optimizer.lr={rate:g}"]
        if length.max_generated_tokens is not None:
            own.append(f"trainer.max_generated_tokens={length.max_generated_tokens}")
        strengths = [] if strength is None else [strength]
        return [*study.train, f"model.path={study.base_model}", *study.arms[arm].overrides, *strengths, *own]

    def evaluation_settings(self, model: str, folder: Path, problems: ProblemSetConfig) -> list[str]:
        """Returns the settings of the evaluation of a model on a set of problems."""
        return [
            f"model.path={model}",
            f"benchmark=[{_BENCHMARK}]",
            f"benchmark.{_BENCHMARK}.path={problems.path}",
            f"benchmark.{_BENCHMARK}.problems={problems.problems}",
            f"n={problems.samples}",
            *self.study.evaluate,
            f"out={folder / 'answers'}",
        ]

    def run_folder(self, arm: str, chosen: RateChoice, seed: int) -> Path:
        """Returns the folder of a run."""
        return self.out / "runs" / arm / _place(chosen.chosen, chosen.strength) / f"seed-{seed}"

    def _strengths(self, arm: str) -> list[str | None]:
        return [*self.study.arms[arm].strengths] or [None]

    def rate_folder(self, arm: str, rate: float, strength: str | None) -> Path:
        """Returns the folder of a trial of a learning rate and a strength."""
        return self.out / "tune" / arm / _place(rate, strength)

    def _train(self, runner: CommandRunner, folder: Path, settings: Sequence[str], length: RunLength) -> float:
        """Trains, from the beginning where an earlier attempt did not finish; returns the seconds."""
        run_dir = folder / "train"
        summary = read(run_dir / "summary.json")
        over = summary and length.reached(summary["iterations"], summary["tokens_generated"])
        if over and (run_dir / "model" / "config.json").exists():
            return float(summary["wall_s"])
        for old in (run_dir, folder / "answers"):
            remove(old)
        return runner.run(python(_TRAIN, *self._options, *settings, f"hydra.run.dir={run_dir}"), folder / "train.log")

    def _evaluate(self, runner: CommandRunner, model: str, folder: Path, problems: ProblemSetConfig) -> float:
        command = python(_EVALUATE, *self._options, *self.evaluation_settings(model, folder, problems))
        return runner.run(command, folder / "evaluate.log")

    def _store(self, folder: Path) -> AnswerStore:
        return AnswerStore(folder / "answers" / _BENCHMARK)

    def _statistics(self, folder: Path) -> AnswerStatistics:
        return answer_statistics(self._store(folder).table(), self.study.diversity)

    def _remove_files(self, folder: Path) -> None:
        if self.study.keep_files:
            return
        for path in folder.iterdir():
            if path.name != RESULT:
                remove(path)


def python(module: str, *arguments: str) -> list[str]:
    """Returns the command that runs a module, or a script by its path, with this interpreter.

    A module is looked for where this process finds its own, and not in the current folder (``-P``).
    """
    name = [module] if module.endswith(".py") else ["-P", "-m", module]
    return [sys.executable, *name, *arguments]


def choice(trials: Sequence[RateTrial], metric: str) -> RateTrial:
    """Returns the trial with the highest value of a metric; of equal ones the one with the lowest rate.

    A value that is no number, such as of a training that diverged, is the lowest.
    """

    def rank(one: RateTrial) -> tuple[float, float]:
        value = one.metrics[metric]
        return -math.inf if math.isnan(value) else value, -one.rate

    return max(trials, key=rank)


def _place(rate: float, strength: str | None) -> str:
    """Returns the name of a folder for a rate and a strength."""
    return f"{rate:g}" if strength is None else f"{rate:g}_{_NO_NAME.sub('-', strength)}"
