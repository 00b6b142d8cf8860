"""The engine of ``rollout=auto``, chosen by the whole configuration and written into it."""

import inspect
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig, OmegaConf

from ngrpo.compat.moved import current
from ngrpo.config.instantiate import build, build_kind
from ngrpo.entrypoints.config_snapshot import has_config, load_config
from ngrpo.entrypoints.planned_run import read_run
from ngrpo.entrypoints.trainer import process_count
from ngrpo.errors import first_line
from ngrpo.evaluation.evaluator import Evaluator
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.loading import ModelSource
from ngrpo.planning.engine_memory import ASLEEP_BYTES
from ngrpo.planning.memory_plan import Phase, plan_memory
from ngrpo.rollout.auto import (
    EXACT,
    ON_CPU,
    Surroundings,
    asked_for_compile,
    auto_engine,
    reason_for_torch,
    torch_taken,
)
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.vllm.availability import gpu_memory
from ngrpo.rollout.vllm.engine import VllmEngine
from ngrpo.utils.torch_settings import accelerator_of

log = logging.getLogger(__name__)

_SHARE, _STEP = 0.5, 0.05
_USABLE = 0.95
"""Of a GPU: the rest is for what no plan counts, such as fragments and the CUDA context."""


def _name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


_AUTO, _TORCH, _VLLM = (_name(kind) for kind in (auto_engine, TorchEngine, VllmEngine))


@dataclass(frozen=True)
class MemoryShare:
    """vLLM's part of a GPU.

    Attributes:
        share: ``gpu_memory_utilization``; 0 where the training leaves it none.
        origin: why it is that much, in words.
    """

    share: float
    origin: str


def choose_for_training(config: DictConfig, earlier: Path | None) -> str:
    """Writes the engine of a training into a configuration with ``rollout=auto``.

    Args:
        config: composed from ``conf/train.yaml``, checked.
        earlier: the folder of the run that goes on; it keeps its engine, so that resuming is exact.

    Returns:
        A line that says which and why, to be logged when nothing else is refused; "" if the configuration names one.
    """
    if not _is_open(config):
        return ""
    accelerator = accelerator_of(config.trainer.accelerator)
    if line := _settled_without_vllm(config, accelerator, earlier):
        return line
    source, strategy = build(config.model), build_kind(Exploration, config.exploration)
    processes = process_count(config.trainer)
    ranks = max(1, processes // max(1, config.trainer.tensor_parallel_size))  # 0 is refused later
    requests = config.algo.prompts_per_batch // ranks * config.rollout.group_size
    around = Surroundings(accelerator, requests, _evaluated(config))
    if line := _takes_torch(config, source, strategy, around):
        return line
    given = _vllm_node(config, own_process=processes > 1 or config.rollout.ahead > 0)
    planned = _with_engine(config, given)
    share = share_beside_training(planned)
    if share.share == 0 and _kind(earlier) != _VLLM:
        return _take_torch(config, share.origin)
    given.gpu_memory_utilization = share.share or _SHARE
    return _take_vllm(config, given, share.origin)


def choose_for_sampling(
    config: DictConfig, source: ModelSource, strategy: Exploration, requests: int, earlier: Path | None = None
) -> str:
    """Writes the engine of an evaluation or of samples into a configuration with ``rollout=auto``.

    Args:
        config: composed from ``conf/evaluate.yaml`` or ``conf/sample.yaml``, checked.
        source: the model.
        strategy: of the rollouts.
        requests: most rollouts in one call.
        earlier: the folder of stored answers that are completed, with the engine that made them.

    Returns:
        See `choose_for_training`.
    """
    if not _is_open(config):
        return ""
    accelerator = accelerator_of(config.accelerator)
    if line := _settled_without_vllm(config, accelerator, earlier):
        return line
    if line := _takes_torch(config, source, strategy, Surroundings(accelerator, requests)):
        return line
    share = _within_free(MemoryShare(_SHARE, "its default"))
    node = _vllm_node(config, own_process=False)
    node.gpu_memory_utilization = share.share
    return _take_vllm(config, node, share.origin)


def tell(*lines: str) -> None:
    """Logs, on the first rank, the lines of what was chosen, where there was something to choose."""
    for line in filter(None, lines):
        if rank_zero_only.rank == 0:
            log.info("%s", line)


def share_beside_training(config: DictConfig) -> MemoryShare:
    """Returns vLLM's part of a GPU that the training's plan leaves it, at most its default.

    Args:
        config: of a training with vLLM's engine.
    """
    _, total = gpu_memory(_index())
    try:
        run = read_run(config, total)
        plan = plan_memory(run)
        engine = run.engine.memory(run.config, plan.numbers, total)
    except Exception as error:  # a plan is an aid: a model that it cannot follow may train all the same
        log.debug("no plan of the memory", exc_info=True)
        return _within_free(MemoryShare(_SHARE, f"its default, as the memory cannot be planned ({first_line(error)})"))
    phases = list(Phase) if run.engine.concurrent else [Phase.GENERATE]
    beside = max(plan.total(phase) for phase in phases) - engine.awake
    share = _rounded((_USABLE * total - beside) / total)
    if share * total < engine.weights + 2 * ASLEEP_BYTES:
        return MemoryShare(0, f"the training leaves vLLM {max(share, 0):z.0%} of the GPU, too little for its weights")
    if share < _SHARE:
        return _within_free(MemoryShare(share, "what the training leaves"))
    return _within_free(MemoryShare(_SHARE, "its default, which fits beside the training"))


def _within_free(wanted: MemoryShare) -> MemoryShare:
    """Lowers a share to the memory that others leave, never to nothing: vLLM itself says if that is too little."""
    free, total = gpu_memory(_index())
    room = max(_STEP, _rounded(_USABLE * free / total))
    if room >= wanted.share:
        return wanted
    return MemoryShare(room, "what other programs leave")


def _rounded(share: float) -> float:
    return round(int(share / _STEP + 1e-9) * _STEP, 2)


def _index() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def _is_open(config: DictConfig) -> bool:
    return bool(config.rollout.engine["_target_"] == _AUTO)


def _settled_without_vllm(config: DictConfig, accelerator: str, earlier: Path | None) -> str:
    """Takes torch where model and plan need not be asked; returns "" where they must be."""
    compile = config.rollout.engine.get("compile")
    if compile is not None:
        return _take_torch(config, asked_for_compile(compile))
    if config.rollout.exact:
        return _take_torch(config, EXACT)
    if _kind(earlier) == _TORCH:
        return _take_torch(config, f"{earlier} was made with it")
    return "" if accelerator == "gpu" else _take_torch(config, ON_CPU)


def _takes_torch(config: DictConfig, source: ModelSource, strategy: Exploration, around: Surroundings) -> str:
    node = config.rollout.engine
    prompt, new = config.data.max_prompt_tokens, config.rollout.max_new_tokens
    reason = reason_for_torch(source, strategy, prompt, new, around, node.get("dense_record_gib", 16.0))
    return "" if reason is None else _take_torch(config, reason)


def _kind(earlier: Path | None) -> str | None:
    """Returns the target of the engine of an earlier run's configuration."""
    if earlier is None or not has_config(earlier):
        return None
    target = OmegaConf.select(load_config(earlier), "rollout.engine._target_")
    return None if target is None else current(str(target))


def _evaluated(config: DictConfig) -> list[Exploration]:
    """Returns the strategies of the evaluations during training."""
    nodes = [node.get("evaluator") for node in config.callbacks.values() if isinstance(node, DictConfig)]
    made = [build(node) for node in nodes if isinstance(node, DictConfig) and "_target_" in node]
    return [one.exploration for one in made if isinstance(one, Evaluator)]


def _defaults(kind: Any) -> dict[str, Any]:
    """Returns an engine's own settings; ``exact`` is the rollout's, and passed to it."""
    parameters = inspect.signature(kind).parameters.values()
    given = {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}
    return {name: default for name, default in given.items() if name != "exact"}


def _given(config: DictConfig, kind: Any) -> dict[str, Any]:
    """Returns what the open node sets of an engine's settings."""
    known = inspect.signature(kind).parameters
    return {str(name): value for name, value in config.rollout.engine.items() if name in known and value is not None}


def _vllm_node(config: DictConfig, own_process: bool) -> DictConfig:
    settings = _defaults(VllmEngine) | _given(config, VllmEngine)
    return OmegaConf.create({"_target_": _VLLM, **settings, "own_process": own_process})


def _with_engine(config: DictConfig, node: DictConfig) -> DictConfig:
    changed = config.copy()
    changed.rollout.engine = node
    return changed


def _take_torch(config: DictConfig, reason: str) -> str:
    config.rollout.engine = OmegaConf.create(
        {"_target_": _TORCH, **_defaults(TorchEngine), **_given(config, TorchEngine)}
    )
    return torch_taken(reason)


def _take_vllm(config: DictConfig, node: DictConfig, origin: str) -> str:
    config.rollout.engine = node
    return f"rollout=auto takes vLLM with gpu_memory_utilization={node.gpu_memory_utilization:g}: {origin}"
