"""The jobs of a study and the folders that they write; what is finished stays, so that a second call continues."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from ngrpo.errors import RunError
from ngrpo.evaluation.answer_store import AnswerStore
from ngrpo.evaluation.answer_table import answers_of
from ngrpo.evaluation.benchmark_report import report
from ngrpo.evaluation.ks import powers_of_two
from ngrpo.study.definition import ProblemSetConfig, StudyConfig
from ngrpo.study.results import RESULT, AnswerStatistics, RateChoice, RateTrial, RunResult, read, write
from ngrpo.study.run_metrics import answer_statistics, curves
from ngrpo.study.scheduler import CommandRunner, Job
from ngrpo.utils.atomic_write import remove
from ngrpo.utils.provenance import git_commit

_BENCHMARK = "custom"
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
        rates = self.study.tune.rates
        return [
            self._tune_job(arm, rate)
            for rate in rates
            for arm in self.study.arms
            if not (self._rate_folder(arm, rate) / RESULT).exists()
        ]

    def _tune_job(self, arm: str, rate: float) -> Job:
        folder, tune = self._rate_folder(arm, rate), self.study.tune

        def run(runner: CommandRunner) -> None:
            self._train(runner, folder, self.train_settings(arm, tune.seed, rate, tune.iterations), tune.iterations)
            self._evaluate(runner, str(folder / "train" / "model"), folder, tune.validation)
            table = self._store(folder).table()
            found = report(answers_of(table), powers_of_two(tune.validation.samples))
            write(folder / RESULT, RateTrial(rate, {name: one.value for name, one in found.metrics.items()}))
            self._remove_files(folder)

        return Job(f"tune {arm} {rate:g}", run)

    def rate_choices(self) -> dict[str, RateChoice]:
        """Returns the choice of each arm of which all rates were tried."""
        found = {}
        for arm in self.study.arms:
            files = [self._rate_folder(arm, rate) / RESULT for rate in self.study.tune.rates]
            if all(file.exists() for file in files):
                trials = [RateTrial(**read(file)) for file in files]
                found[arm] = RateChoice(choice(trials, self.study.tune.metric), trials)
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
            self._run_job(arm, seed, rates[arm].chosen)
            for seed in seeds
            for arm, settings in self.study.arms.items()
            if seed < settings.seeds and not (self.run_folder(arm, rates[arm].chosen, seed) / RESULT).exists()
        ]

    def _run_job(self, arm: str, seed: int, rate: float) -> Job:
        folder = self.run_folder(arm, rate, seed)
        settings = self.train_settings(arm, seed, rate, self.study.iterations)

        def run(runner: CommandRunner) -> None:
            seconds = {"train": self._train(runner, folder, settings, self.study.iterations)}
            model = str(folder / "train" / "model")
            seconds["evaluate"] = self._evaluate(runner, model, folder, self.study.test)
            result = RunResult(
                arm=arm,
                seed=seed,
                rate=rate,
                settings=settings,
                iterations=self.study.iterations,
                test=self._statistics(folder),
                curves=curves(folder / "train"),
                seconds={name: round(value, 1) for name, value in seconds.items()},
                device=torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
                commit=git_commit(),
                date=time.strftime("%Y-%m-%d"),
            )
            write(folder / RESULT, result)
            self._remove_files(folder)

        return Job(f"run {arm} seed {seed}", run)

    def train_settings(self, arm: str, seed: int, rate: float, iterations: int) -> list[str]:
        """Returns the settings of a training run; what all arms share comes first."""
        study = self.study
        own = [f"seed={seed}", f"trainer.iterations={iterations}", f"trainer.optimizer.lr={rate:g}"]
        return [*study.train, f"model.path={study.base_model}", *study.arms[arm].overrides, *own]

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

    def run_folder(self, arm: str, rate: float, seed: int) -> Path:
        """Returns the folder of a run."""
        return self.out / "runs" / arm / f"{rate:g}" / f"seed-{seed}"

    def _rate_folder(self, arm: str, rate: float) -> Path:
        return self.out / "tune" / arm / f"{rate:g}"

    def _train(self, runner: CommandRunner, folder: Path, settings: Sequence[str], iterations: int) -> float:
        """Trains, from the beginning where an earlier attempt did not finish; returns the seconds."""
        run_dir = folder / "train"
        if _iterations(run_dir) == iterations and (run_dir / "model" / "config.json").exists():
            return float(read(run_dir / "summary.json")["wall_s"])
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


def choice(trials: Sequence[RateTrial], metric: str) -> float:
    """Returns the rate with the highest value of a metric; of equal ones the lowest rate."""
    return max(trials, key=lambda one: (one.metrics[metric], -one.rate)).rate


def _iterations(run_dir: Path) -> int:
    return int(read(run_dir / "summary.json").get("iterations", 0))
