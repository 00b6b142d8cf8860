"""A plan in less than a second: two shallow models, and parts that grow linearly in the layers."""

import copy
from dataclasses import replace

from transformers import PretrainedConfig

from ngrpo.planning.memory_plan import MemoryPlan, Part, plan_memory
from ngrpo.planning.run_settings import RunSettings

_FEW, _MORE = 2, 4


def quick_plan(run: RunSettings) -> MemoryPlan:
    """Plans a run without tracing all its layers, and without asking the compiler what compiled ones keep.

    Args:
        run: the settings; with ``compile`` the activations are those of layers that are not compiled, which keep more.
    """
    run, layers = replace(run, compile=False), run.config.num_hidden_layers
    if layers <= _MORE:
        return plan_memory(run)
    few, more = (plan_memory(replace(run, config=_with_layers(run.config, count))) for count in (_FEW, _MORE))
    steps = (layers - _MORE) / (_MORE - _FEW)
    return MemoryPlan(
        parts=tuple(replace(part, bytes=_further(_bytes(few, part), part.bytes, steps)) for part in more.parts),
        numbers=_further(few.numbers, more.numbers, steps),
        trained=_further(few.trained, more.trained, steps),
        cache_tokens=_further(few.cache_tokens, more.cache_tokens, steps),
        device_bytes=more.device_bytes,
    )


def _further(few: int, more: int, steps: float) -> int:
    return max(0, round(more + steps * (more - few)))


def _bytes(plan: MemoryPlan, part: Part) -> int:
    return sum(one.bytes for one in plan.parts if one.name == part.name)


def _with_layers(config: PretrainedConfig, count: int) -> PretrainedConfig:
    shallow = copy.deepcopy(config)
    shallow.num_hidden_layers = count
    if getattr(shallow, "layer_types", None):
        shallow.layer_types = shallow.layer_types[:count]
    return shallow
