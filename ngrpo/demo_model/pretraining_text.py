"""The texts that the demo models are pretrained on, as token ids."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from transformers import PreTrainedTokenizerFast

from ngrpo.data.word_problems.generator import draw
from ngrpo.data.word_problems.levels import SHIPPED, Level
from ngrpo.demo_model.recipe import Recipe
from ngrpo.demo_model.responses import direct, gains_first, stepped
from ngrpo.demo_model.tokenizer import END


@dataclass(frozen=True)
class Example:
    """A training text.

    Attributes:
        ids: token ids of prompt and response.
        prompt: how many of them are the prompt.
    """

    ids: list[int]
    prompt: int


def encode_prompt(question: str, tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Token ids of the question in the chat template, up to where the reasoning begins."""
    messages = [{"role": "user", "content": question}]
    ids: list[int] = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    return ids


def example(
    key: int, tokenizer: PreTrainedTokenizerFast, stepped_share: Mapping[int, float], recipe: Recipe
) -> Example:
    """The training text of this number.

    Args:
        key: number of the problem in the train split.
        tokenizer: the demo's tokenizer.
        stepped_share: probability that the steps are written out, by the number of steps.
        recipe: which problems, and how often the steps are in another order.
    """
    story, question = draw(key, "train", recipe.level)
    rng = random.Random(key)
    respond = stepped if rng.random() < stepped_share[len(story.equations)] else direct
    if respond is stepped and recipe.gains_first and rng.random() < recipe.gains_first:
        respond = gains_first
    start = encode_prompt(question, tokenizer)
    return Example(start + tokenizer(respond(story, rng) + END).input_ids, len(start))


def plain_texts(count: int, level: Level = SHIPPED) -> Iterator[str]:
    """Questions and both kinds of response to them, for the tokenizer to learn from."""
    for key in range(count):
        story, question = draw(key, "train", level)
        rng = random.Random(key)
        yield from (question, stepped(story, rng), direct(story, rng))
