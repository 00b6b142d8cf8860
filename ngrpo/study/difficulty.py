"""The accuracy of the untrained model by difficulty, from which a study's level is chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from ngrpo.config.instantiate import build
from ngrpo.errors import SettingError
from ngrpo.evaluation.evaluator import Evaluator
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.study.definition import LevelsConfig, StudyConfig
from ngrpo.study.room import Room
from ngrpo.study.untrained import training_config
from ngrpo.utils.torch_settings import accelerator_of, set_torch


@dataclass(frozen=True)
class LevelAccuracies:
    """Accuracy by level of difficulty.

    Attributes:
        rooms: by ``data.path``, in the order of the candidates.
        chosen: of the candidates that keep the rule the one whose Mean@1 is nearest to the middle; None if none does.
    """

    rooms: Mapping[str, Room]
    chosen: str | None


def measure_levels(conf: Path, study: StudyConfig, folder: Path | None = None) -> LevelAccuracies:
    """Samples validation problems of every candidate from the untrained model.

    Raises:
        SettingError: the study has no candidates.
    """
    if not study.levels.paths:
        raise SettingError("levels.paths=[] has no difficulty to choose from; name some, such as [demo:1-1,demo:2-2].")
    config = training_config(conf, [*study.train, f"model.path={study.base_model}"], folder)
    set_torch(config.trainer.threads, config.trainer.matmul_precision)
    source = build(config.model)
    tokenizer = source.tokenizer()
    settings = RolloutSettings(1, config.rollout.max_new_tokens, config.rollout.temperature)
    evaluator = Evaluator(samples=study.levels.samples)
    engine = build(
        config.rollout.engine,
        model=source,
        exploration=evaluator.exploration,
        accelerator=config.trainer.accelerator,
    )
    worker = RolloutWorker(
        engine, tokenizer, build(config.reward), evaluator.exploration, settings, source.stop_ids(tokenizer), seed=0
    )
    worker.start(torch.device("cuda" if accelerator_of(config.trainer.accelerator) == "gpu" else "cpu"))
    rooms, samples = {}, study.levels.samples
    for path in study.levels.paths:
        config.data.path, config.data.eval_path = path, f"{path}@validation"
        config.data.eval_problems = study.levels.problems
        data = build(config.data, tokenizer=tokenizer, prompts_per_batch=1, seed=0)
        found = evaluator.run(worker, data.eval_prompts()).metrics
        rooms[path] = Room(samples, found["mean@1"], found[f"pass@{samples}"])
    worker.close()
    return LevelAccuracies(rooms, nearest(rooms, study.levels))


def nearest(rooms: Mapping[str, Room], rule: LevelsConfig) -> str | None:
    """Returns the candidate that keeps the rule and is nearest to the middle of its range; None without one."""
    middle = (rule.low + rule.high) / 2
    fitting = [path for path, room in rooms.items() if not room.shortfalls(rule)]
    return min(fitting, key=lambda path: abs(rooms[path].mean - middle), default=None)
