"""The texts that the demo models are pretrained on, as token ids."""

from dataclasses import dataclass

from transformers import PreTrainedTokenizerFast

from ngrpo.demo_model.lessons import Lessons
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


def example(key: int, tokenizer: PreTrainedTokenizerFast, lessons: Lessons, settled: bool = False) -> Example:
    """The training text of this number.

    Args:
        key: number of the problem in the train split.
        tokenizer: the demo's tokenizer.
        lessons: what is taught.
        settled: in the last part of the training.
    """
    lesson = lessons.lesson(key, settled)
    start = encode_prompt(lesson.question, tokenizer)
    return Example(start + tokenizer(lesson.response + END).input_ids, len(start))
