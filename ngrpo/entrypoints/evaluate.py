"""The evaluation of a model without training it."""

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from rich import get_console

from ngrpo.config.check import checked
from ngrpo.config.environment import fingerprinted, stored
from ngrpo.config.instantiate import build
from ngrpo.config.ranges import check_finite
from ngrpo.config.schema import EvaluateConfig
from ngrpo.data.chat_template import chat_format, fix_date
from ngrpo.entrypoints.config_snapshot import has_config, load_config, save_config
from ngrpo.entrypoints.engine_choice import choose_for_sampling
from ngrpo.entrypoints.input_validation import check_accelerator, check_inputs
from ngrpo.entrypoints.reward_trial import try_reward
from ngrpo.entrypoints.validation import check_evaluation
from ngrpo.evaluation.answer_sampling import collect, missing
from ngrpo.evaluation.answer_store import AnswerStore
from ngrpo.evaluation.answer_table import answers_of
from ngrpo.evaluation.benchmark_report import Report, average, report
from ngrpo.evaluation.evaluator import Evaluator
from ngrpo.evaluation.identity import prompts_digest
from ngrpo.evaluation.ks import chosen_ks
from ngrpo.evaluation.tables import report_table
from ngrpo.modeling.digest import weights_digest
from ngrpo.modeling.learned import load_learned
from ngrpo.modeling.loading import ModelSource
from ngrpo.report.status_line import status_line
from ngrpo.rewards.isolation.custom import StrictIsolatedReward, build_reward
from ngrpo.rollout.worker import RolloutSettings, RolloutWorker
from ngrpo.types.problems import Prompt
from ngrpo.utils.atomic_write import write_text
from ngrpo.utils.lock import lock
from ngrpo.utils.torch_settings import accelerator_of, set_torch

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
    source, evaluator = build(config.model), build(config.evaluator)
    check_evaluation(config, evaluator)
    ks = chosen_ks(config.k, evaluator.samples)
    requests = config.problems_at_once * evaluator.samples
    choose_for_sampling(config, source, evaluator.exploration, requests, out)
    worker = _worker(config, source, evaluator)
    tasks = _tasks(config, source, evaluator, worker, out)
    try_reward(config.reward, worker.reward, {name: task.prompts for name, task in tasks.items()})
    save_config(config, out)
    waiting = {name: missing(task.prompts, task.store) for name, task in tasks.items()}
    if any(waiting.values()):
        worker.start(torch.device("cuda" if accelerator_of(config.accelerator) == "gpu" else "cpu"))
    with status_line(worker) as line:
        for name, prompts in waiting.items():
            total = len(tasks[name].prompts)
            log.info("%s: %d problems, %d samples each, %d to do", name, total, evaluator.samples, len(prompts))
            for done in collect(prompts, evaluator, worker, tasks[name].store, config.problems_at_once):
                line.prefix = f"{name}: {total - len(prompts) + done}/{total} problems  "
    worker.reward.close()
    reports = {name: report(answers_of(task.store.table()), ks) for name, task in tasks.items()}
    _write(reports, {name: task.left_out for name, task in tasks.items()}, stored(config)["model"]["path"], out)
    get_console().print(report_table(reports))
    get_console().print(f"answers and figures in {out}", soft_wrap=True)
    return reports


def _worker(config: DictConfig, source: ModelSource, evaluator: Evaluator) -> RolloutWorker:
    rollout = RolloutSettings(max_new_tokens=config.rollout.max_new_tokens)
    check_finite(config)
    engine = build(config.rollout.engine, model=source, exploration=evaluator.exploration)
    tokenizer = check_inputs(source, evaluator.exploration, engine, config, config.problems_at_once * evaluator.samples)
    return RolloutWorker(
        engine=engine,
        tokenizer=tokenizer,
        reward=build_reward("reward", config.reward, config.custom_reward_timeout_s, StrictIsolatedReward),
        exploration=evaluator.exploration,
        settings=rollout,
        stop_ids=source.stop_ids(tokenizer),
        seed=config.seed,
        learned=load_learned(source, evaluator.exploration),
    )


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
