"""Templates of strangers: refused where they cannot be relied on, and told a date that stays."""

import time
from datetime import date

import pytest
from omegaconf import OmegaConf
from tiny_tokenizer import CHAT_TEMPLATE, tiny_tokenizer

from ngrpo.data.chat import PromptBuilder
from ngrpo.data.chat_template import ChatFormat, asks_for_date, check_chat_template, fix_date, render
from ngrpo.errors import SettingError

DATED = "{{ strftime_now('%d %b %Y') }} " + CHAT_TEMPLATE
THINKING = "{% if enable_thinking is defined and not enable_thinking %}off{% endif %}" + CHAT_TEMPLATE
LOOP = "{% for a in range(9999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
LOOP += "{% endfor %}" * 3

BAD = {
    "{{ messages[0].content": "cannot be applied",
    "{{ raise_exception('no') }}": "cannot be applied .no.",
    "{{ messages[0].content + 1 }}": "cannot be applied",
    "{{ messages[7].content.x.y }}": "cannot be applied",
    "{{ messages[0].nothing.more() }}": "cannot be applied",
    "{{ ''.__class__.__mro__ }}": "cannot be applied",
    "{{ 1 / 0 }}{{ messages[0].content }}": "cannot be applied",
    "{{ tools[0].name }}{{ messages[0].content }}": "cannot be applied",
    "{% include 'x' %}": "cannot be applied",
    "Hello <assistant>": "never shows the question",
    "{{ messages[0].content[:3] }}": "never shows the question",
    "{% for m in messages %}{{ m.text }}{% endfor %}": "never shows the question",
    "{{ messages[0].content }}{{ [1, 2, 3] | random }}": "another text at each call",
    "{{ messages[0].content }}{{ lipsum() }}": "another text at each call",
    "{% set f = '%d' %}{{ strftime_now(f) }}" + CHAT_TEMPLATE: "its date cannot be fixed",
    "{% set f = strftime_now %}{{ f('%H:%M:%S') }}" + CHAT_TEMPLATE: "its date cannot be fixed",
    "{% macro m(f) %}{{ f('%Y') }}{% endmacro %}{{ m(strftime_now) }}" + CHAT_TEMPLATE: "its date cannot be fixed",
    "{{ strftime_now(format='%Y') }}" + CHAT_TEMPLATE: "its date cannot be fixed",
    "{{ [range(9)]|map('random')|first }}" + CHAT_TEMPLATE: "another text at each call",
    "{% set f = 'random' %}{{ [[1, 2]]|map(f)|first }}" + CHAT_TEMPLATE: "another text at each call",
    "{{ raise_exception }}" + CHAT_TEMPLATE: "an address in memory",
    "{{ messages[-1].content[:200] }}": "never shows the question",
    LOOP + CHAT_TEMPLATE: "does not end within",
    "{{ 'x' * 10 ** 11 }}" + CHAT_TEMPLATE: "GiB|cannot be applied",
}


@pytest.mark.parametrize("template", BAD)
def test_a_template_that_cannot_be_relied_on_is_refused_in_a_sentence(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ngrpo.data.chat_template._LIMIT_S", 2.0 if LOOP in template else 20.0)
    started = time.monotonic()
    with pytest.raises(SettingError, match=rf"model.path=\S* has a chat template that .*({BAD[template]})") as caught:
        check_chat_template(tiny_tokenizer(template), ChatFormat())
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 15


def test_a_system_prompt_that_is_never_shown_is_refused() -> None:
    silent = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    check_chat_template(tiny_tokenizer(silent), ChatFormat())
    with pytest.raises(SettingError, match=r"data.system_prompt='be brief' does not suit .* never shows a system"):
        check_chat_template(tiny_tokenizer(silent), ChatFormat("be brief"))


def test_arguments_reach_the_template_and_must_be_read_by_it() -> None:
    tokenizer = tiny_tokenizer(THINKING)
    assert render(tokenizer, "what", ChatFormat(template_args={"enable_thinking": False})).startswith("off")
    assert not render(tokenizer, "what", ChatFormat()).startswith("off")
    check_chat_template(tokenizer, ChatFormat(template_args={"enable_thinking": False}))
    for arguments, told in (
        ({"enable_thinkin": False}, r"data.template_args.enable_thinkin=False is nothing that the chat template of"),
        ({"messages": "x"}, r"data.template_args.messages=x is set by this program"),
        ({"tokenize": True}, r"data.template_args.tokenize=True is set by this program"),
        ({"strftime_now": 1}, r"data.template_args.strftime_now=1 is set by this program"),
    ):
        with pytest.raises(SettingError, match=told):
            check_chat_template(tokenizer, ChatFormat(template_args=arguments))
    with pytest.raises(SettingError, match=r"data.template_args.a=\[1\] is no plain value"):
        ChatFormat(template_args={"a": [1]})
    with pytest.raises(SettingError, match=r"data.template_args=.*has none; set data.template_args=\{\}"):
        check_chat_template(tiny_tokenizer(None), ChatFormat(template_args={"enable_thinking": False}))


def test_the_tags_of_transformers_are_read() -> None:
    marked = "{{ messages[0].content }}{% generation %}{{ mood }}{% endgeneration %}{% break %}"
    check_chat_template(tiny_tokenizer(marked.replace("{% break %}", "")), ChatFormat(template_args={"mood": "calm"}))


def test_a_template_is_told_the_date_of_the_settings() -> None:
    tokenizer = tiny_tokenizer(DATED)
    assert asks_for_date(tokenizer)
    assert not asks_for_date(tiny_tokenizer())
    assert not asks_for_date(tiny_tokenizer(None))
    assert render(tokenizer, "what", ChatFormat(template_date="2025-03-04")).startswith("04 Mar 2025")
    builders = [PromptBuilder(tokenizer, 100, None, ChatFormat(template_date=day)) for day in ("2025-03-04", None)]
    assert builders[0] != builders[1]
    with pytest.raises(SettingError, match=r"data.template_date=tomorrow is no day; write one as 2026-01-31"):
        ChatFormat(template_date="tomorrow")


@pytest.mark.parametrize(
    ("template", "written", "earlier", "expected"),
    [
        (DATED, None, None, date.today().isoformat()),
        (DATED, None, "2025-03-04", "2025-03-04"),
        (DATED, "2024-01-01", "2025-03-04", "2024-01-01"),
        (CHAT_TEMPLATE, None, None, None),
        (CHAT_TEMPLATE, None, "2025-03-04", None),
    ],
)
def test_the_date_is_fixed_once(template: str, written: str | None, earlier: str | None, expected: str | None) -> None:
    data = OmegaConf.create({"template_date": written})
    fix_date(data, tiny_tokenizer(template), earlier)
    assert data.template_date == expected


@pytest.mark.parametrize(
    "template",
    [
        "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% endif %}",
        '{% if strftime_now %}{{ strftime_now( "%Y" ) }}{% endif %}',
        "{% set d = strftime_now('%Y') if strftime_now is defined else 'x' %}{{ d }}",
    ],
)
def test_a_template_may_ask_whether_there_is_a_date(template: str) -> None:
    tokenizer, chat = tiny_tokenizer(template + CHAT_TEMPLATE), ChatFormat(template_date="2019-03-04")
    check_chat_template(tokenizer, chat)
    assert render(tokenizer, "what", chat).startswith("2019")


def test_several_templates_need_a_default() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = {"default": CHAT_TEMPLATE, "other": "x"}
    check_chat_template(tokenizer, ChatFormat())
    tokenizer.chat_template = {"one": CHAT_TEMPLATE, "other": "x"}
    with pytest.raises(SettingError, match="several chat templates and none is the default"):
        check_chat_template(tokenizer, ChatFormat())
