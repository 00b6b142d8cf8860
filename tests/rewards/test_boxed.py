import time

import pytest

from ngrpo.rewards.boxed import after_reasoning, answer_of, answers_of, last_boxed


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{7}", "7"),
        (r"\boxed{\frac{1}{2}} and so on}", r"\frac{1}{2}"),
        (r"\boxed {7}", "7"),
        (r"\boxed{ 7 }", "7"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\left\{1\right.}", r"\left\{1\right."),
        (r"\boxed{a\\}", r"a\\"),  # a line break, then the end of the box
        (r"\boxed{5} wrong \boxed{7}", "7"),
        (r"we get \boxed{5}, no wait, \boxed{7}", "7"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{x = \boxed{5} + 2}", "5"),
        (r"\boxed{5} or rather \boxed{7", "5"),
        (r"\boxed{5 \boxed{7}", "7"),
        (r"\boxed{7}. I put it in \boxed{}.", None),
        (r"\boxed{7} and \boxed{ }", None),
        ("\\boxed{1\n2}", "1\n2"),
        (r"a } b \boxed{7}", "7"),
        (r"a { b \boxed{7}", "7"),
        (r"$\boxed 42$", "42"),
        (r"$\boxed -4.5$ is it", "-4.5"),
        (r"\(\boxed \frac{1}{2}\)", r"\frac{1}{2}"),
        (r"\(\boxed42\)", "42"),
        (r"{\boxed 42}", "42"),
        (r"\boxed 5$ then \boxed{7}", "7"),
        (r"\boxed{7}, as asked in \boxed format", "7"),
        (r"\boxed{}", None),
        (r"\boxed{42", None),
        (r"\boxed{\{1}", r"\{1"),
        (r"\boxed{1\}", None),
        (r"\fbox{42}", None),
        (r"\boxedfoo{42}", None),
        (r"\\boxed{42}", None),  # a line break followed by a word
        ("no box", None),
        ("", None),
    ],
)
def test_last_boxed(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


def box_by_box(text: str) -> str | None:
    """What is in the last complete braced box, found by counting from every opening in turn."""
    for start in reversed([i for i in range(len(text)) if text.startswith("\\boxed{", i)]):
        depth = 0
        for end in range(start + 6, len(text)):
            depth += (text[end] == "{") - (text[end] == "}")
            if depth == 0:
                return text[start + 7 : end].strip() or None
    return None


def test_last_boxed_equals_counting_from_every_box() -> None:
    pieces = ["\\boxed{", "{", "}", "7", " x "]
    found = set()
    for number in range(5**6):
        text = "".join(pieces[number // 5**place % 5] for place in range(6))
        assert last_boxed(text) == box_by_box(text), text
        found.add(last_boxed(text))
    assert len(found) > 50


def test_last_boxed_is_linear_in_boxes_that_never_close() -> None:
    start = time.perf_counter()
    assert last_boxed(r"\boxed{" * 100_000) is None
    assert time.perf_counter() - start < 2


def test_after_reasoning() -> None:
    assert after_reasoning("a</think>b") == "b"
    assert after_reasoning("a</think>b</think>c") == "c"
    assert after_reasoning("a</think>") == ""
    assert after_reasoning("no marker") == "no marker"
    assert after_reasoning("a[/T]b</think>", end="[/T]") == "b</think>"


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"maybe \boxed{5}</think> It is \boxed{7}", "7"),
        (r"maybe \boxed{5}</think> It is 7", None),
        (r"<think>maybe \boxed{5}</think> It is 7", None),
        (r"<think>maybe \boxed{5}", None),
        (r"It is \boxed{7}", "7"),
        (r"a</think>b<think>\boxed{7}", None),
        (r"a</think>b \boxed{5}</think> \boxed{7}", "7"),
    ],
)
def test_answer_follows_the_reasoning(response: str, answer: str | None) -> None:
    assert answer_of(response, "</think>") == answer


def test_answer_without_a_marker_is_sought_everywhere() -> None:
    assert answer_of(r"<think>\boxed{5}</think> It is 7", None) == "5"


def test_every_box_of_the_answer_is_found() -> None:
    response = r"\boxed{1}</think> \boxed{\frac{1}{2}} or \boxed 3 or \boxed{} or \boxed{\boxed{4} 5}, \boxed{6"
    assert answers_of(response, "</think>") == [r"\frac{1}{2}", "3", "", "4", r"\boxed{4} 5"]
    assert answers_of(response, None)[0] == "1"
    assert answers_of(r"<think>\boxed{1}", "</think>") == []
