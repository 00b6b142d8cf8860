"""What a model writes is shown, and does nothing."""

import html
import re

import pytest
from tensorboard.plugin_util import markdown_to_safe_html

from ngrpo.utils.sanitize import markdown_literal, visible


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain \u00e9 \u4e2d\n\tline", "plain \u00e9 \u4e2d\n\tline"),
        ("\x1b[31mred\x07", "\u241b[31mred\u2407"),
        ("\x7f\x9b", "\u2421<U+009B>"),  # 0x9b opens an escape sequence by itself
        ("a\rb\x00", "a\u240db\u2400"),
        ("\u202ereversed\u2066", "<U+202E>reversed<U+2066>"),
        ("\u2028\ud800", "<U+2028><U+D800>"),
        ("joined\u200d", "joined\u200d"),
    ],
)
def test_controls_become_visible(text: str, expected: str):
    assert visible(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "![picture](http://example.org/x.png)",
        "[link](javascript:alert(1)) <http://example.org>",
        "# heading",
        "**bold** _it_ `code` ~~gone~~",
        "| a | b |",
        "1. one",
        "&lt;b&gt;",
    ],
)
def test_tensorboard_shows_the_text_as_it_is(text: str):

    page = markdown_to_safe_html(markdown_literal(text)).split("-->")[-1].strip()
    assert re.findall(r"</?(\w+)", page) == ["p", "p"]
    assert html.unescape(re.sub(r"</?p>", "", page)) == text


def test_line_ends_stay_and_end_no_paragraph():
    assert markdown_to_safe_html(markdown_literal("one\n\n# two")).count("<br") == 2
