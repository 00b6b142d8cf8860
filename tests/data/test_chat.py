import pytest
from tiny_tokenizer import CHAT_TEMPLATE, tiny_tokenizer

from ngrpo.data.chat import PromptBuilder
from ngrpo.data.chat_template import ChatFormat
from ngrpo.errors import SettingError
from ngrpo.types.problems import Excluded, Problem, Prompt

PROBLEM = Problem(0, "what is 2", "2")


def text(result: Prompt | Excluded) -> str:
    assert isinstance(result, Prompt)
    return " ".join(tiny_tokenizer().convert_ids_to_tokens(list(result.ids)))


def test_template_has_one_bos_and_the_generation_prompt() -> None:
    prompt = PromptBuilder(tiny_tokenizer(), 100)(PROBLEM)
    assert text(prompt) == "<bos> <user> what is 2 <end> <assistant>"
    assert isinstance(prompt, Prompt)
    assert prompt.problem is PROBLEM


def test_instruction_and_system_prompt() -> None:
    prompt = PromptBuilder(tiny_tokenizer(), 100, instruction="please box", chat=ChatFormat("be brief"))(PROBLEM)
    assert text(prompt) == "<bos> <system> be brief <end> <user> what is 2 please box <end> <assistant>"


def test_without_a_template_the_plain_question_keeps_its_bos_but_no_eos() -> None:
    prompt = PromptBuilder(tiny_tokenizer(None), 100, "please box", ChatFormat("be brief"))(PROBLEM)
    assert text(prompt) == "<bos> be brief what is 2 please box"


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, None])
def test_long_prompts_are_excluded_not_cut(template: str | None) -> None:
    prompt = PromptBuilder(tiny_tokenizer(template), 100)(PROBLEM)
    assert isinstance(prompt, Prompt)
    length = len(prompt.ids)
    assert PromptBuilder(tiny_tokenizer(template), length)(PROBLEM) == prompt
    assert PromptBuilder(tiny_tokenizer(template), length - 1)(PROBLEM) == Excluded("prompt_too_long")


def test_a_template_that_refuses_the_system_prompt_is_named() -> None:
    refusing = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    with pytest.raises(SettingError, match=r"data\.system_prompt='be brief'.*no system role.*unset"):
        PromptBuilder(tiny_tokenizer(refusing + CHAT_TEMPLATE), 100, chat=ChatFormat("be brief"))
