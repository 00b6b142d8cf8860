"""Evaluates a model without training it."""

import json
import logging
from pathlib import Path

import torch
from omegaconf import DictConfig
from rich import get_console
from rich.table import Table

from ngrpo.checks import check_context
from ngrpo.config import EvaluateConfig, build, checked
from ngrpo.errors import SettingError
from ngrpo.modeling.learned import load_learned
from ngrpo.rollout.worker import RolloutSettings, RolloutWorker
from ngrpo.training import accelerator_of, use_threads

log = logging.getLogger(__name__)


def evaluate(config: DictConfig, run_dir: Path) -> dict[str, float]:
    """Samples the evaluation problems, prints the metrics and writes ``evaluation.json``.

    Args:
        config: composed from ``conf/evaluate.yaml``.
        run_dir: where the result is written.

    Returns:
        The metrics of `ngrpo.evaluation.evaluator.Evaluator.run`.

    Raises:
        SettingError: a setting cannot work; raised before the model is loaded.
    """
    config = checked(config, EvaluateConfig)
    use_threads(config.threads)
    source = build(config.model)
    evaluator = build(config.evaluator)
    rollout = RolloutSettings(max_new_tokens=config.rollout.max_new_tokens)
    check_context(source.config(), config.data.max_prompt_tokens, rollout.max_new_tokens)
    tokenizer = source.tokenizer()
    prompts = build(config.data, tokenizer=tokenizer, prompts_per_batch=1, seed=config.seed).eval_prompts()
    if not prompts:
        raise SettingError(
            f"data.path={config.data.path} has no evaluation problems of its own; set data.eval_path to some."
        )
    worker = RolloutWorker(
        engine=build(config.rollout.engine, model=source, exploration=evaluator.exploration),
        tokenizer=tokenizer,
        reward=build(config.reward),
        exploration=evaluator.exploration,
        settings=rollout,
        stop_ids=source.stop_ids(tokenizer),
        seed=config.seed,
        learned=load_learned(source, evaluator.exploration),
    )
    log.info("evaluating %d problems, %d samples each", len(prompts), evaluator.samples)
    worker.start(torch.device("cuda" if accelerator_of(config.accelerator) == "gpu" else "cpu"))
    metrics = evaluator.run(worker, prompts)
    worker.reward.close()
    (run_dir / "evaluation.json").write_text(json.dumps({"problems": len(prompts), **metrics}, indent=2) + "\n")
    get_console().print(_table(metrics))
    return metrics


def _table(metrics: dict[str, float]) -> Table:
    table = Table("metric", "value")
    for name, value in metrics.items():
        table.add_row(name, f"{value:.4f}")
    return table
