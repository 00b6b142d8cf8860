"""Every file under conf/ composes, passes the checks, and builds what it names."""

import inspect
import logging
import logging.config
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import get_object
from lightning import Trainer
from omegaconf import DictConfig, OmegaConf, open_dict
from places import ROOT

from ngrpo.config.check import checked
from ngrpo.config.instantiate import build
from ngrpo.config.schema import Config, EvaluateConfig, SampleConfig, ServeConfig, register
from ngrpo.data.datamodule import PromptDataModule
from ngrpo.entrypoints.console import ConsoleHandler
from ngrpo.entrypoints.trainer import make_trainer
from ngrpo.evaluation.evaluator import Evaluator
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.rewards.math import MathReward
from ngrpo.rollout.dynamic_sampling import DynamicSampling, every_group
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.study.definition import load_study
from ngrpo.study.study_jobs import StudyJobs
from ngrpo.study.untrained import training_config
from ngrpo.training.optim.optimizers import EightBitAdamW
from ngrpo.training.run_length import RunLength

CONF = ROOT / "conf"
FILES = sorted(path.relative_to(CONF).with_suffix("").as_posix() for path in CONF.rglob("*.yaml"))
SCHEMAS = {"train": Config, "evaluate": EvaluateConfig, "sample": SampleConfig, "serve": ServeConfig}
NODES = {"train": 12, "evaluate": 5, "sample": 3, "serve": 3}
"""Least number of parts. train: model, data, reward, algo, exploration, engine, optimizer, logger, and callbacks."""
STUDIES = [file for file in FILES if file.startswith("study")]
CLIP = "{_target_:ngrpo.algo.clip.clipped_surrogate,_partial_:true,low:0.2,high:0.2,dual:null}"
FURTHER_OVERRIDES = {
    # What every preset adds to the base.
    "algo/base": [
        "+algo/advantage=group_centred",
        "+algo/ratio=token",
        "+algo/aggregate=token_mean",
        "+algo/kl=k1",
        f"+algo.clip={CLIP}",
    ],
    "algo/advantage/custom": ["algo.advantage._target_=ngrpo.algo.advantage.raw"],
    "algo/ratio/custom": ["algo.ratio._target_=ngrpo.algo.ratio.token"],
    "algo/clip/custom": ["algo.clip._target_=ngrpo.algo.clip.unclipped"],
    "algo/aggregate/custom": ["algo.aggregate._target_=ngrpo.algo.aggregate.token_mean"],
    "algo/kl/custom": ["algo.kl._target_=ngrpo.algo.kl.k3"],
    "algo/credit/custom": ["algo.credit._target_=ngrpo.algo.credit.Broadcast"],
    "algo/token_weight/custom": ["algo.token_weight._target_=ngrpo.algo.token_weight.EvenTokens"],
    "algo/bonus/custom": ["algo.bonus._target_=ngrpo.algo.outcome_bonus.DifferentAnswers"],
    "algo/within_group/custom": ["algo.within_group._target_=ngrpo.algo.within_group.shortest"],
    "algo/adaptive_entropy/custom": ["algo.adaptive_entropy._target_=ngrpo.algo.adaptive_entropy.AdaptiveEntropy"],
    "algo/correction/custom": ["algo.correction._target_=ngrpo.algo.correction.NoCorrection"],
    "data/custom": ["data.path._target_=ngrpo.data.sources.demo.DemoSource"],
    "rollout/base": ["rollout.engine={_target_:ngrpo.rollout.torch_engine.engine.TorchEngine}"],
    # What the user gives; the demo's problems never come twice.
    "data/curriculum/sampled_by_pass_rate": ["data.path=rows.json"],
    "reward_terms/custom": ["reward_terms.custom.term._target_=ngrpo.rewards.terms.one_box.OneBox"],
    "reward/custom": ["reward._target_=ngrpo.rewards.math.MathReward"],
    "reward/reward_model": ["reward.path=classifier"],
    "reward/llm_judge": ["reward.url=http://localhost:1/v1", "reward.model=judge"],
    "benchmark/custom": ["benchmark.custom.path=problems.json"],
    "exploration/custom": ["exploration._target_=ngrpo.exploration.token.TokenSampling"],
    "rollout/scheduler/custom": ["rollout.scheduler._target_=ngrpo.rollout.scheduling.independent.IndependentSamples"],
}


def root_of(file: str) -> str:
    if file.startswith("study"):
        return "study"
    if file in ("sample", "serve"):
        return file
    return "evaluate" if file == "evaluate" or file.startswith(("evaluator/", "benchmark/")) else "train"


@cache
def composed(file: str) -> DictConfig:
    """The configuration with ``file`` chosen for its group; Hydra's own node included."""
    register()
    group, _, option = file.rpartition("/")
    overrides = ([f"{group}={option}"] if group else []) + FURTHER_OVERRIDES.get(file, [])
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return compose(root_of(file), overrides=overrides, return_hydra_config=True)


def checked_config(file: str) -> DictConfig:
    """What `ngrpo.entrypoints.train.train` gets to see of it, checked."""
    config = composed(file)
    ours = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])
    return checked(ours, SCHEMAS[root_of(file)])


def targets(node: Any) -> Iterator[DictConfig]:
    """The outermost `_target_` nodes; Hydra instantiates those within."""
    if not isinstance(node, DictConfig):
        return
    if "_target_" in node:
        yield node
        return
    for child in node.values():
        yield from targets(child)


@pytest.fixture(scope="module")
def available(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The objects of a run, as `ngrpo.entrypoints.train.train` passes them; no model is loaded."""
    source = ModelSource()
    tokenizer = source.tokenizer()
    run_dir = tmp_path_factory.mktemp("run")
    worker = RolloutWorker(
        engine=TorchEngine(source),
        tokenizer=tokenizer,
        reward=MathReward(),
        exploration=TokenSampling(),
        settings=RolloutSettings(),
        stop_ids=source.stop_ids(tokenizer),
        seed=0,
    )
    return {
        "model": source,
        "exploration": TokenSampling(),
        "source": source,
        "tokenizer": tokenizer,
        "prompts_per_batch": 4,
        "seed": 0,
        "worker": worker,
        "datamodule": PromptDataModule(tokenizer=tokenizer, prompts_per_batch=4, seed=0, eval_problems=4),
        "selection": DynamicSampling(every_group),
        "iterations": 2,
        "run_length": RunLength(2, None),
        "run_name": "neighbor-gspo-s0",
        "run_dir": run_dir,
        "identity": {},
        "save_dir": str(run_dir),
        "methods": {"algo": "grpo"},
        "settings": {},
    }


def test_files_are_found() -> None:
    assert {"train", "evaluate", "algo/grpo", "algo/kl/k3", "hydra/job_logging/ngrpo"} <= set(FILES)
    assert len(FILES) == len([path for path in CONF.rglob("*") if path.is_file()])


@pytest.mark.parametrize("file", [file for file in FILES if file not in STUDIES])
def test_file_composes_and_builds(file: str, available: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("training.optim.optimizers", "modeling.lora"):
        monkeypatch.setattr(f"ngrpo.{module}.require", lambda package, setting: None)
    group, _, option = file.rpartition("/")
    if group:
        assert composed(file).hydra.runtime.choices[group] == option
    config = checked_config(file)
    nodes = [node for node in targets(config) if node is not config.data or str(config.data.path).startswith("demo")]
    assert len(nodes) >= NODES[root_of(file)]
    for node in nodes:
        made = build(node, **available)
        if node is config.get("trainer", {}).get("optimizer") and not isinstance(made, EightBitAdamW):
            made = made([torch.nn.Parameter(torch.zeros(2))])
            assert isinstance(made, torch.optim.Optimizer)
        assert not isinstance(made, DictConfig)
        is_function = inspect.isfunction(get_object(node["_target_"]))
        assert is_function or callable(made) or type(made).__name__ == node["_target_"].rpartition(".")[2]


@pytest.mark.parametrize("name", ["demo", "quick", "smollm2", "smollm2_long", "countdown", "word_problems"])
def test_every_command_of_a_study_composes(name: str, tmp_path: Path) -> None:
    """Every arm trains with settings that are there, on what the others train on, and so it is with the evaluations."""
    study = load_study(CONF, name, [])
    jobs = StudyJobs(study, tmp_path)
    shared = []
    for arm in study.arms:
        config = training_config(CONF, jobs.train_settings(arm, 3, 2e-5, RunLength(7)))
        assert (config.seed, config.trainer.iterations, config.trainer.optimizer.lr) == (3, 7, 2e-5)
        batch = (config.algo.prompts_per_batch, config.algo.optimizer_steps)
        assert (config.rollout.scheduler["_target_"].endswith("ForkAtShare")) == ("tree" in arm)
        config.rollout.scheduler = None
        shared.append((config.model, config.data, config.rollout, config.trainer, config.callbacks, batch))
        built = build(config.exploration)
        mixes = "neighbor" in arm or "argmax_gate" in arm
        assert mixes == (type(built).__name__ == "NeighborMixing")
    assert all(one == shared[0] for one in shared)
    for what in (study.test, study.tune.validation):
        with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
            words = jobs.evaluation_settings(study.base_model, tmp_path, what)
            config = checked(compose("evaluate", overrides=words), EvaluateConfig)
        assert config.benchmark.custom.path == what.path
        assert config.benchmark.custom.instruction == shared[0][1].instruction
        assert config.rollout.max_new_tokens == shared[0][2].max_new_tokens
        assert build(config.evaluator) == Evaluator(samples=what.samples, temperature=1.0)
    paths = {study.test.path, study.tune.validation.path}
    assert paths == {f"{shared[0][1].path}@{split}" for split in ("held_out", "validation")}


def test_studies_have_every_arm_and_enough_seeds() -> None:
    for name in ("demo", "smollm2"):
        study = load_study(CONF, name, [])
        main = {"token_grpo", "neighbor_grpo", "token_gspo", "neighbor_gspo"}
        assert len(study.arms) == 12
        assert all(arm.seeds >= (5 if name in main else 3) for name, arm in study.arms.items())
        assert study.test.problems >= 500


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("trainer/")])
def test_trainer_is_made(file: str) -> None:
    config = checked_config(file).trainer
    if config.accelerator == "gpu" and not torch.cuda.is_available():
        assert (config.devices, config.precision) == ("auto", "bf16-mixed")
        return
    assert isinstance(make_trainer(config, processes=1, callbacks=[], logger=[]), Trainer)


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("algo/")])
def test_algorithm_takes_the_chosen_function(file: str) -> None:
    """The function that the file names is the one in the built algorithm."""
    part = file.split("/")[1] if file.count("/") == 2 else None
    config = checked_config(file).algo
    algorithm = build(config)
    if part is not None:
        function = getattr(algorithm, part)
        found = getattr(function, "func", function if inspect.isfunction(function) else type(function))
        assert f"{found.__module__}.{found.__name__}" == config[part]["_target_"]
    assert algorithm.prompts_per_batch % algorithm.optimizer_steps == 0


def test_job_logging_writes_the_file_and_the_console(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = composed("hydra/job_logging/ngrpo").copy()
    with open_dict(config):
        config.hydra.runtime.output_dir = str(tmp_path)
        config.hydra.job.name = "train"
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    try:
        logging.config.dictConfig(OmegaConf.to_container(config.hydra.job_logging, resolve=True))
        assert [type(handler) for handler in root.handlers] == [ConsoleHandler, logging.FileHandler]
        logging.getLogger("ngrpo.example").info("iteration [1] done")
        root.handlers[1].close()
    finally:
        root.handlers, root.level = before
    assert (tmp_path / "train.log").read_text().endswith("[ngrpo.example][INFO] iteration [1] done\n")
    assert re.fullmatch(r"\d\d:\d\d:\d\d  iteration \[1\] done\n", capsys.readouterr().out)
