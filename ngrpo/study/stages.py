"""The folders of a study and what each of its jobs does; everything finished stays, so a second call goes on."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from ngrpo.errors import RunError
from ngrpo.evaluation.answer_store import AnswerStore
from ngrpo.evaluation.answers import answers_of
from ngrpo.evaluation.ks import powers_of_two
from ngrpo.evaluation.report import report
from ngrpo.study.definition import SampledConfig, StudyConfig
from ngrpo.study.measure import curves, sampled
from ngrpo.study.results import RESULT, RunResult, Sampled, Tried, Tuned, read, write
from ngrpo.study.scheduler import Job, Shell
from ngrpo.utils.atomic_write import remove
from ngrpo.utils.provenance import git_commit

_BENCHMARK = "custom"


class Work:
    """Makes the jobs of a study.

    Args:
        study: what it consists of.
        out: its folder: ``base/``, ``tune/ARM/RATE/``, ``runs/ARM/RATE/seed-N/`` with a ``result.json`` each when
            finished.
    """

    def __init__(self, study: StudyConfig, out: Path) -> None:
        self.study = study
        self.out = out.absolute()

    def model_job(self) -> list[Job]:
        """Returns the job that makes the model, if there is one to make."""
        words, folder = self.study.make_model, Path(self.study.base_model)
        if not words or (folder / "config.json").exists():
            return []

        def work(shell: Shell) -> None:
            shell.run([sys.executable, *words], self.out / "make_model.log")

        return [Job("model", work)]

    def base_job(self) -> list[Job]:
        """Returns the job that evaluates the untrained model, unless that is done."""
        folder = self.out / "base"

        def work(shell: Shell) -> None:
            self._evaluate(shell, self.study.base_model, folder, self.study.test)
            write(folder / RESULT, self._sampled(folder))
            self._tidy(folder)

        return [] if (folder / RESULT).exists() else [Job("base", work)]

    def tune_jobs(self) -> list[Job]:
        """Returns the jobs of the rates that were not tried yet, arms taking turns."""
        rates = self.study.tune.rates
        return [
            self._tune_job(arm, rate)
            for rate in rates
            for arm in self.study.arms
            if not (self._tried(arm, rate) / RESULT).exists()
        ]

    def _tune_job(self, arm: str, rate: float) -> Job:
        folder, tune = self._tried(arm, rate), self.study.tune

        def work(shell: Shell) -> None:
            self._train(shell, folder, self.train_settings(arm, tune.seed, rate, tune.iterations), tune.iterations)
            self._evaluate(shell, str(folder / "train" / "model"), folder, tune.validation)
            table = self._store(folder).table()
            found = report(answers_of(table), powers_of_two(tune.validation.samples))
            write(folder / RESULT, Tried(rate, {name: one.value for name, one in found.metrics.items()}))
            self._tidy(folder)

        return Job(f"tune {arm} {rate:g}", work)

    def tuned(self) -> dict[str, Tuned]:
        """Returns the choice of each arm of which all rates were tried."""
        found = {}
        for arm in self.study.arms:
            files = [self._tried(arm, rate) / RESULT for rate in self.study.tune.rates]
            if all(file.exists() for file in files):
                tried = [Tried(**read(file)) for file in files]
                found[arm] = Tuned(choice(tried, self.study.tune.metric), tried)
        return found

    def run_jobs(self, rates: dict[str, Tuned]) -> list[Job]:
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

        def work(shell: Shell) -> None:
            seconds = {"train": self._train(shell, folder, settings, self.study.iterations)}
            model = str(folder / "train" / "model")
            seconds["evaluate"] = self._evaluate(shell, model, folder, self.study.test)
            result = RunResult(
                arm=arm,
                seed=seed,
                rate=rate,
                settings=settings,
                iterations=self.study.iterations,
                test=self._sampled(folder),
                curves=curves(folder / "train"),
                seconds={name: round(value, 1) for name, value in seconds.items()},
                device=torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
                commit=git_commit(),
                date=time.strftime("%Y-%m-%d"),
            )
            write(folder / RESULT, result)
            self._tidy(folder)

        return Job(f"run {arm} seed {seed}", work)

    def train_settings(self, arm: str, seed: int, rate: float, iterations: int) -> list[str]:
        """Returns the settings of scripts/train.py that make a run; what all arms share comes first."""
        study = self.study
        own = [f"seed={seed}", f"trainer.iterations={iterations}", f"trainer.optimizer.lr={rate:g}"]
        return [*study.train, f"model.path={study.base_model}", *study.arms[arm].overrides, *own]

    def evaluation_settings(self, model: str, folder: Path, what: SampledConfig) -> list[str]:
        """Returns the settings of scripts/evaluate.py that answer ``what`` with a model."""
        return [
            f"model.path={model}",
            f"benchmark=[{_BENCHMARK}]",
            f"benchmark.{_BENCHMARK}.path={what.path}",
            f"benchmark.{_BENCHMARK}.problems={what.problems}",
            f"n={what.samples}",
            *self.study.evaluate,
            f"out={folder / 'answers'}",
        ]

    def run_folder(self, arm: str, rate: float, seed: int) -> Path:
        """Returns the folder of a run."""
        return self.out / "runs" / arm / f"{rate:g}" / f"seed-{seed}"

    def _tried(self, arm: str, rate: float) -> Path:
        return self.out / "tune" / arm / f"{rate:g}"

    def _train(self, shell: Shell, folder: Path, settings: Sequence[str], iterations: int) -> float:
        """Trains, from the beginning if an earlier attempt was not finished; returns the seconds."""
        run = folder / "train"
        if _iterations(run) == iterations and (run / "model" / "config.json").exists():
            return float(read(run / "summary.json")["wall_s"])
        for old in (run, folder / "answers"):
            remove(old)
        words = [sys.executable, "scripts/train.py", *settings, f"hydra.run.dir={run}"]
        return shell.run(words, folder / "train.log")

    def _evaluate(self, shell: Shell, model: str, folder: Path, what: SampledConfig) -> float:
        words = [sys.executable, "scripts/evaluate.py", *self.evaluation_settings(model, folder, what)]
        return shell.run(words, folder / "evaluate.log")

    def _store(self, folder: Path) -> AnswerStore:
        return AnswerStore(folder / "answers" / _BENCHMARK)

    def _sampled(self, folder: Path) -> Sampled:
        return sampled(self._store(folder).table(), self.study.diversity)

    def _tidy(self, folder: Path) -> None:
        if self.study.keep_files:
            return
        for path in folder.iterdir():
            if path.name != RESULT:
                remove(path)


def choice(tried: Sequence[Tried], metric: str) -> float:
    """Returns the rate with the highest value of a metric; of equal ones the lowest rate."""
    return max(tried, key=lambda one: (one.metrics[metric], -one.rate)).rate


def _iterations(run: Path) -> int:
    return int(read(run / "summary.json").get("iterations", 0))
