"""The quick plan says what the whole plan says, at every depth."""

import copy
from dataclasses import replace

import pytest
from test_memory_plan import TINY
from tiny_kinds import CONFIGS

from ngrpo.planning.memory_plan import plan_memory
from ngrpo.planning.quick_plan import quick_plan


def deep(config, layers):
    made = copy.deepcopy(config)
    for name, value in vars(config).items():
        if isinstance(value, list) and len(value) == config.num_hidden_layers:  # a kind of each layer
            setattr(made, name, (value * layers)[:layers])
    made.num_hidden_layers = layers
    return made


@pytest.mark.parametrize("kind", sorted(CONFIGS))
@pytest.mark.parametrize("checkpointing", ["off", "full"])
def test_it_is_the_whole_plan(kind, checkpointing):
    run = replace(TINY, config=deep(CONFIGS[kind], 9), checkpointing=checkpointing)
    quick, whole = quick_plan(run), plan_memory(run)
    assert (quick.certain, quick.numbers, quick.trained) == (whole.certain, whole.numbers, whole.trained)
    assert quick.peak == pytest.approx(whole.peak, rel=0.02)


def test_compiled_layers_are_not_traced():
    run = replace(TINY, config=deep(CONFIGS["qwen2"], 9))
    assert quick_plan(replace(run, compile=True)) == quick_plan(run)
