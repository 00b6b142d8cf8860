"""The best engine for a run: vLLM on a GPU where it can serve the run, else the torch engine."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ngrpo.errors import SettingError, first_line
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.model_in_memory import ModelInMemory
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.rollout.served_dtype import AUTO
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.utils.torch_settings import accelerator_of

log = logging.getLogger(__name__)


ON_CPU = "the run is on a CPU"
"""Why the torch engine is taken."""


def asked_for_compile(compile: bool) -> str:
    """Returns why the torch engine is taken where ``rollout.engine.compile`` is set."""
    return f"rollout.engine.compile={str(compile).lower()} is a setting of it"


EXACT = "rollout.exact=true is a setting of it"
"""The same where ``rollout.exact`` is."""


def torch_taken(reason: str) -> str:
    """Returns the line of the log that says so."""
    return f"rollout=auto takes the torch engine: {reason}"


@dataclass(frozen=True)
class Surroundings:
    """What is around an engine that is to be chosen.

    Attributes:
        accelerator: "gpu" or "cpu".
        requests: most rollouts in one call; 0 if that is not known.
        evaluated: further strategies that the same engine will run.
    """

    accelerator: str
    requests: int = 0
    evaluated: Sequence[Exploration] = ()


def reason_for_torch(
    model: ModelSource,
    exploration: Exploration,
    max_prompt_tokens: int,
    max_new_tokens: int,
    around: Surroundings,
    dense_record_gib: float = 16.0,
) -> str | None:
    """Returns why vLLM cannot serve a run here; None if it can. Nothing is started, and no weights are read.

    Args:
        model: where the weights come from.
        exploration: the strategy that the engine is made for.
        max_prompt_tokens: longest prompt.
        max_new_tokens: longest response.
        around: the machine and the run.
        dense_record_gib: see `ngrpo.rollout.vllm.engine.VllmEngine`.
    """
    if around.accelerator != "gpu":
        return ON_CPU
    if isinstance(model, ModelInMemory):
        return "the model is in memory, and vLLM loads files"
    if any(exploration.sums_rows and not _fits(one, exploration) for one in around.evaluated):
        return "an evaluation mixes more than the training strategy, for which vLLM is started"
    from ngrpo.rollout.vllm.availability import has_native
    from ngrpo.rollout.vllm.engine import VllmEngine
    from ngrpo.rollout.vllm.versions import Standing, check_version, newer_than_tested

    try:
        if check_version() is Standing.NEWER:
            return f"{newer_than_tested()}; rollout=vllm takes it"
        engine = VllmEngine(model, exploration, max_prompt_tokens, max_new_tokens, dense_record_gib=dense_record_gib)
        engine.check_installed()
        for strategy in (exploration, *around.evaluated):
            engine.check_load(strategy, around.requests, max_new_tokens)
        native = has_native(model.config())
    except SettingError as refused:
        return str(refused)
    except (ImportError, OSError) as failed:
        return f"vLLM cannot be imported ({first_line(failed)})"
    return None if native else f"vLLM has no implementation of its own for model.path={model.path}"


def _fits(strategy: Exploration, started_for: Exploration) -> bool:
    return strategy.sums_rows and strategy.width <= max(started_for.width, 1)


def auto_engine(
    model: ModelSource,
    exploration: Exploration,
    max_prompt_tokens: int,
    max_new_tokens: int,
    max_batch_size: int | None = None,
    compile: bool | None = None,
    exact: bool = False,
    dense_record_gib: float = 16.0,
    accelerator: str = "auto",
    dtype: str = AUTO,
    burst: int | None = None,
) -> RolloutEngine:
    """Returns vLLM's engine on a GPU where it can serve the model, else the torch engine, and logs which and why.

    The commands choose by the whole configuration (`ngrpo.entrypoints.engine_choice`); this is the choice without one.

    Args:
        model: where the weights come from.
        exploration: the training strategy.
        max_prompt_tokens: longest prompt.
        max_new_tokens: longest response.
        max_batch_size: most rollouts running at once; None is the engine's own default.
        compile: of the torch engine; True and False take that one.
        exact: of the torch engine; True takes that one.
        dense_record_gib: see `ngrpo.rollout.vllm.engine.VllmEngine`.
        accelerator: of the program: auto, cpu or gpu.
        dtype: of the served weights; "auto" is the engine's own default.
        burst: decode steps between two looks of the host; None is the engine's own default.
    """
    from ngrpo.rollout.vllm.engine import VllmEngine

    around = Surroundings(accelerator_of(accelerator))
    if compile is not None:
        reason: str | None = asked_for_compile(compile)
    elif exact:
        reason = EXACT
    else:
        reason = reason_for_torch(model, exploration, max_prompt_tokens, max_new_tokens, around, dense_record_gib)
    slots: dict[str, Any] = {} if max_batch_size is None else {"max_batch_size": max_batch_size}
    if reason is not None:
        log.info("%s", torch_taken(reason))
        return TorchEngine(model, compile=bool(compile), exact=exact, dtype=dtype, burst=burst, **slots)
    log.info("rollout=auto takes vLLM: there are a GPU and a tested version")
    slots |= {"dtype": dtype, "dense_record_gib": dense_record_gib, "burst": burst}
    return VllmEngine(model, exploration, max_prompt_tokens, max_new_tokens, **slots)
