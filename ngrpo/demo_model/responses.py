"""The responses that demo models learn: with the steps written out, in one order or another, or at once."""

import random

from ngrpo.data.word_problems import story_words as words
from ngrpo.data.word_problems.generator import Equation, Story, number, verb


def stepped(story: Story, rng: random.Random) -> str:
    """A response that tells the story again with every calculation, then answers."""
    subject = rng.choice((story.name, story.pronoun.capitalize()))
    steps = [_opening(story, rng), *(_step(equation, rng) for equation in story.changes)]
    return _finish(f"{subject} {', '.join(steps)}.", story)


def gains_first(story: Story, rng: random.Random) -> str:
    """A response like that of `stepped` which first tells of all that is added."""
    return stepped(story.gains_first(), rng)


def direct(story: Story, rng: random.Random) -> str:
    """A response that answers after a few idle words."""
    pointer, seems, easy = (rng.choice(slot) for slot in (words.POINTERS, words.SEEMS, words.EASY))
    return _finish(f"{pointer} {seems} {easy}.", story)


def is_stepped(response: str) -> bool:
    """Whether the response has a written calculation in it."""
    return "=" in response


def _finish(reasoning: str, story: Story) -> str:
    return f"{reasoning}\n</think>\n\\boxed{{{story.answer}}}"


def _opening(story: Story, rng: random.Random) -> str:
    first = story.equations[0]
    have = rng.choice(words.HAVE)
    if first.operation == "*":
        containers = f"{number(first.left, rng)} {rng.choice(words.CONTAINERS)} of {number(first.right, rng)}"
        return f"{have} {containers} {story.objects} ({first})"
    return f"{have} {number(first.left, rng)} {story.objects}"


def _step(equation: Equation, rng: random.Random) -> str:
    return f"{verb(equation.operation, rng)} {number(equation.right, rng)} ({equation})"
