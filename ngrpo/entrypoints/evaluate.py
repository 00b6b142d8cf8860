"""The evaluation of a model without training it."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich import get_console

from ngrpo.config.check import checked
from ngrpo.config.environment import fingerprinted, stored
from ngrpo.config.instantiate import build
from ngrpo.config.schema import EvaluateConfig
from ngrpo.data.chat_template import chat_format, fix_date
from ngrpo.entrypoints.config_snapshot import has_config, load_config, save_config
from ngrpo.entrypoints.engine_choice import choose_for_sampling, tell
from ngrpo.entrypoints.evaluation_replicas import answer_on_replicas, replica_count
from ngrpo.entrypoints.evaluation_worker import build_evaluation_worker, start_evaluation_worker
from ngrpo.entrypoints.input_validation import check_accelerator, check_devices
from ngrpo.entrypoints.reward_trial import try_reward
from ngrpo.entrypoints.validation import check_evaluation
from ngrpo.evaluation.answer_sampling import answer_all, missing
from ngrpo.evaluation.answer_store import AnswerStore
from ngrpo.evaluation.answer_table import answers_of
from ngrpo.evaluation.benchmark_report import Report, average, report
from ngrpo.evaluation.evaluator import Evaluator
from ngrpo.evaluation.identity import prompts_digest
from ngrpo.evaluation.ks import chosen_ks
from ngrpo.evaluation.tables import report_table
from ngrpo.modeling.digest import weights_digest
from ngrpo.modeling.loading import ModelSource
from ngrpo.report.status_line import status_line
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.types.problems import Prompt
from ngrpo.utils.atomic_write import write_text
from ngrpo.utils.lock import lock
from ngrpo.utils.torch_settings import set_torch

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """A benchmark's prompts and where their answers are stored.

    Attributes:
        prompts: all of them.
        store: their answers.
        left_out: rows without a prompt, by reason.
    """

    prompts: list[Prompt]
    store: AnswerStore
    left_out: dict[str, int]


def evaluate(config: DictConfig, out: Path) -> dict[str, Report]:
    """Samples the benchmarks, stores the answers, prints the figures and writes ``evaluation.json``.

    Problems whose answers are in ``out`` already are not sampled again.

    Args:
        config: composed from ``conf/evaluate.yaml``.
        out: folder of the answers and figures.

    Returns:
        The figures by benchmark, computed from the stored answers.

    Raises:
        SettingError: a setting cannot work, or ``out`` holds answers made with others or is being written; raised
            before the model is loaded.
    """
    config = checked(config, EvaluateConfig)
    with lock(out, "out"):
        return _evaluate(config, out)


def _evaluate(config: DictConfig, out: Path) -> dict[str, Report]:
    set_torch(config.threads, config.matmul_precision)
    check_accelerator(config.accelerator, "accelerator", "accelerator=cpu")
    check_devices(config.devices, config.accelerator, "devices")
    source, evaluator = build(config.model), build(config.evaluator)
    check_evaluation(config, evaluator)
    ks = chosen_ks(config.k, evaluator.samples)
    requests = config.problems_at_once * evaluator.samples
    choice = choose_for_sampling(config, source, evaluator.exploration, requests, out)
    worker = build_evaluation_worker(config, source, evaluator)
    tasks = _tasks(config, source, evaluator, worker, out)
    try_reward(config.reward, worker.reward, {name: task.prompts for name, task in tasks.items()})
    tell(choice)
    save_config(config, out)
    waiting = {name: missing(task.prompts, task.store) for name, task in tasks.items()}
    for name, prompts in waiting.items():
        total = len(tasks[name].prompts)
        log.info("%s: %d problems, %d samples each, %d to do", name, total, evaluator.samples, len(prompts))
    _answer(config, source, evaluator, worker, tasks, waiting)
    worker.reward.close()
    reports = {name: report(answers_of(task.store.table()), ks) for name, task in tasks.items()}
    _write(reports, {name: task.left_out for name, task in tasks.items()}, stored(config)["model"]["path"], out)
    get_console().print(report_table(reports))
    get_console().print(f"answers and figures in {out}", soft_wrap=True)
    return reports


def _answer(
    config: DictConfig,
    source: ModelSource,
    evaluator: Evaluator,
    worker: RolloutWorker,
    tasks: Mapping[str, Task],
    waiting: Mapping[str, list[Prompt]],
) -> None:
    """Answers the waiting problems, in this process or on several replicas."""
    answered = {name: len(task.prompts) - len(waiting[name]) for name, task in tasks.items()}
    replicas = replica_count(config.devices, config.accelerator, sum(map(len, waiting.values())))
    stored_in = {tasks[name].store.folder: prompts for name, prompts in waiting.items()}
    with status_line(worker) as line:

        def report(name: str, more: int) -> None:
            answered[name] += more
            line.prefix = f"{name}: {answered[name]}/{len(tasks[name].prompts)} problems  "

        if replicas > 1:
            answer_on_replicas(config, stored_in, replicas, report)
        elif replicas == 1:
            start_evaluation_worker(worker, source, config)
            answer_all(stored_in, evaluator, worker, config.problems_at_once, report)


def _tasks(
    config: DictConfig, source: ModelSource, evaluator: Evaluator, worker: RolloutWorker, out: Path
) -> dict[str, Task]:
    """Reads the benchmarks and opens their stores."""
    earlier = load_config(out).get("data", {}).get("template_date") if has_config(out) else None
    fix_date(config.data, worker.tokenizer, earlier)
    made_with = _settings(config, source, evaluator, worker)
    tasks = {}
    for name, node in config.benchmark.items():
        asked = build(node).ask(name, worker.tokenizer, config.data.max_prompt_tokens, chat_format(config.data))
        tasks[name] = Task(asked.prompts, AnswerStore(out / name), asked.left_out)
    for task in tasks.values():
        task.store.open({**made_with, "benchmark.problems": prompts_digest(task.prompts)})
    return tasks


def _settings(config: DictConfig, source: ModelSource, evaluator: Evaluator, worker: RolloutWorker) -> dict[str, Any]:
    """Returns all that the answers depend on beside the prompts."""
    return {
        "n": evaluator.samples,
        "seed": config.seed,
        "model.weights": weights_digest(source),
        "model.dtype": config.model.dtype,
        "evaluator.temperature": evaluator.temperature,
        "evaluator.exploration": repr(evaluator.exploration),
        "rollout.max_new_tokens": config.rollout.max_new_tokens,
        "rollout.engine": type(worker.engine).__name__,
        "reward": fingerprinted(config)["reward"],
    }


def _write(reports: dict[str, Report], left_out: dict[str, dict[str, int]], model: str, out: Path) -> None:
    content = {
        "model": model,
        "benchmarks": {name: asdict(one) | {"rows_left_out": left_out[name]} for name, one in reports.items()},
        "average": average(list(reports.values())),
    }
    write_text(out / "evaluation.json", json.dumps(content, indent=2) + "\n")
