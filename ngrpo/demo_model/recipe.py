"""The recipes of the demo models: shape, data and pretraining, one a size."""

from dataclasses import dataclass

from ngrpo.data.countdown.levels import CountdownLevel
from ngrpo.data.word_problems.levels import SHIPPED, harder
from ngrpo.demo_model.lessons import CountdownLessons, Lessons, WordProblemLessons


@dataclass(frozen=True)
class Shape:
    """A model's size.

    Attributes:
        hidden: width.
        intermediate: width of the MLPs.
        layers: decoder layers.
        heads: query heads.
        key_heads: key and value heads.
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_heads: int


@dataclass(frozen=True)
class Recipe:
    """How a demo model is made.

    Attributes:
        lessons: what it is taught.
        shape: of a model made from nothing; None for another one that learns how the demo's answers look.
        batch: examples an optimiser step.
        steps: optimiser steps.
        peak_rate: largest learning rate.
        warmup: steps up to it.
        settle_part: share of the steps that are the last part of the training.
        response_tokens: most tokens of a response when the model is measured.
    """

    lessons: Lessons
    shape: Shape | None
    batch: int
    steps: int
    peak_rate: float
    warmup: int
    settle_part: float = 0.2
    response_tokens: int = 64


SMALL_SHAPE = Shape(hidden=128, intermediate=384, layers=3, heads=4, key_heads=2)

SMALL = Recipe(
    lessons=WordProblemLessons(level=SHIPPED, learn={1: 0.85, 2: 0.85, 3: 0.85}, settle={1: 0.5, 2: 0.3, 3: 0.15}),
    shape=SMALL_SHAPE,
    batch=16,
    steps=4000,
    peak_rate=3e-3,
    warmup=200,
)
"""The shipped model, 0.74 million weights."""

LARGE = Recipe(
    lessons=WordProblemLessons(
        level=harder(2, 6),
        learn={2: 0.85, 3: 0.85, 4: 0.85, 5: 0.85, 6: 0.85},
        settle={2: 0.6, 3: 0.45, 4: 0.3, 5: 0.2, 6: 0.12},
        gains_first=0.25,
    ),
    shape=Shape(hidden=512, intermediate=1536, layers=8, heads=8, key_heads=4),
    batch=512,
    steps=1500,
    peak_rate=1e-3,
    warmup=150,
    response_tokens=128,
)
"""The study's model, 26 million weights."""

ADAPTED = Recipe(
    lessons=WordProblemLessons(
        level=harder(2, 4),
        learn={2: 0.6, 3: 0.5, 4: 0.4},
        settle={2: 0.6, 3: 0.5, 4: 0.4},
        gains_first=0.25,
    ),
    shape=None,
    batch=32,
    steps=128,
    peak_rate=3e-4,
    warmup=8,
    response_tokens=128,
)
"""A pretrained model (``--base``) that is shown the chat template, the reasoning block and the box.

After 64 steps SmolLM2-135M closed its reasoning in a quarter of the cases, after 112 in all but a few.
"""

SHORT = Recipe(
    lessons=WordProblemLessons(level=harder(2, 3), learn={2: 0.85, 3: 0.85}, settle={2: 0.5, 3: 0.4}),
    shape=SMALL_SHAPE,
    batch=64,
    steps=3000,
    peak_rate=3e-3,
    warmup=200,
)
"""A model of the shipped one's shape that was taught short problems with large numbers."""

COUNTDOWN = Recipe(
    lessons=CountdownLessons(CountdownLevel(3, 5)),
    shape=SMALL_SHAPE,
    batch=16,
    steps=1500,
    peak_rate=3e-3,
    warmup=200,
)
"""A model of the shipped one's shape that writes solutions of countdown puzzles, of which some are right."""

SIZES = {"small": SMALL, "large": LARGE, "adapted": ADAPTED, "short": SHORT, "countdown": COUNTDOWN}
