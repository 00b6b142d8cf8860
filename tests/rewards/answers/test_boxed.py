import sys
import time
import tracemalloc
from collections.abc import Callable

import pytest

from ngrpo.rewards.answers.boxed import MAX_ANSWER, after_reasoning, answer_of, boxes, has_one_box, last_boxed


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
        (r"\fbox{42}", "42"),
        (r"\fbox {$\frac{1}{2}$} is it", r"$\frac{1}{2}$"),
        (r"\fbox{4} or \fbox{5}", "5"),
        (r"\boxed{7}, also written \fbox{8}", "7"),
        (r"\fbox{\boxed{7}}", "7"),
        (r"\boxed{x = \fbox{7}}", r"x = \fbox{7}"),
        (r"\fbox{8} is what I put in \boxed{}", None),
        (r"\fbox{8} and then \boxed{7", "8"),
        (r"\fbox 42", None),
        (r"\fboxes{42}", None),
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


HOSTILE: dict[str, Callable[[int], str]] = {
    "nested": lambda n: r"\boxed{" * n + "7" + "}" * n,
    "nested and closed later": lambda n: r"\boxed{" * n + "}" * (n // 2),
    "never closed": lambda n: r"\boxed{" * n,
    "a chain": lambda n: r"\boxed{1}" * n,
    "a chain without braces": lambda n: r"\boxed 1" * n,
    "commands alone": lambda n: r"\boxed " * n,
    "commands and spaces": lambda n: (r"\boxed" + " " * 50) * (n // 8),
    "a group that stays open": lambda n: r"\boxed 1{" * n,
    "groups that stay open": lambda n: r"\boxed 1{x{" * n,
    "groups": lambda n: r"\boxed 1" + "{1}" * n,
    "one long word": lambda n: r"\boxed 1" + "1" * n,
    "one character": lambda n: "x" * n,
    "spaces": lambda n: r"\boxed" + " " * n,
    "opening braces": lambda n: "{" * n,
    "closing braces": lambda n: "}" * n,
    "backslashes": lambda n: "\\" * n,
    "frames": lambda n: r"\fbox{" * n + "}" * n,
    "frames in boxes": lambda n: r"\boxed{\fbox{" * n + "}" * n,
    "half a marker": lambda n: "</think" * n,
    "markers": lambda n: "<think></think>" * n,
}


def peak_and_lines(search: Callable[[str], object], text: str) -> tuple[int, int]:
    """Returns bytes at the peak and lines run, the least of three: the rest of the process may add to it."""
    search(text[:100])  # compiles the patterns
    measured = [one_peak_and_lines(search, text) for _ in range(3)]
    return min(peak for peak, _ in measured), min(lines for _, lines in measured)


def one_peak_and_lines(search: Callable[[str], object], text: str) -> tuple[int, int]:
    """The bytes that a search allocates at most, and the lines of Python that it runs."""
    lines = 0

    def count(*_: object) -> Callable[..., object]:
        nonlocal lines
        lines += 1
        return count

    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        search(text)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    traced = sys.gettrace()
    sys.settrace(count)
    try:
        search(text)
    finally:
        sys.settrace(traced)
    return peak, lines


@pytest.mark.parametrize("search", [lambda text: answer_of(text, "</think>"), lambda text: has_one_box(text, None)])
@pytest.mark.parametrize("kind", HOSTILE)
def test_operations_and_memory_grow_with_the_length(kind: str, search: Callable[[str], object]) -> None:
    (_, lines), (memory, more_lines) = (peak_and_lines(search, HOSTILE[kind](n)) for n in (2_000, 8_000))
    assert more_lines <= 5 * lines + 200
    assert memory <= 60 * len(HOSTILE[kind](8_000)) + 20_000  # bytes


@pytest.mark.parametrize("kind", HOSTILE)
def test_time_grows_with_the_length(kind: str) -> None:
    """Also inside the pattern, whose steps no trace sees."""

    def fastest(n: int) -> float:
        text, times = HOSTILE[kind](n), []
        for _ in range(5):
            start = time.thread_time()
            answer_of(text, "</think>")
            times.append(time.thread_time() - start)
        return min(times)

    assert fastest(40_000) <= 10 * fastest(10_000) + 0.01  # four times as long: 16 times if it were quadratic


def test_forty_thousand_nested_boxes() -> None:
    text = HOSTILE["nested"](40_000)
    start = time.thread_time()
    assert answer_of(text, "</think>") == "7"
    assert time.thread_time() - start < 2  # 24.8 s and 6.1 GB when every box was copied


@pytest.mark.parametrize("box", [r"\boxed{%s}", r"\fbox{%s}", r"\boxed %s"])
def test_a_longer_answer_is_none(box: str) -> None:
    assert last_boxed(box % ("1" * MAX_ANSWER)) == "1" * MAX_ANSWER
    assert last_boxed(box % ("1" * (MAX_ANSWER + 1))) is None
    assert last_boxed(r"\boxed{7} " + box % ("1" * (MAX_ANSWER + 1))) in (None, "7")


def test_spaces_around_an_answer_are_not_counted() -> None:
    assert last_boxed(r"\boxed{" + " " * 10_000 + "7" + " " * 10_000 + "}") == "7"


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


def test_every_box_is_found() -> None:
    text = r"\boxed{\frac{1}{2}} or \boxed 3 or \boxed{} or \boxed{\boxed{4} 5}, \fbox{6}, \boxed{7"
    boxed, framed = boxes(text)
    assert [text[slice(*span)] for span in boxed] == [r"\frac{1}{2}", "3", "", "4", r"\boxed{4} 5"]
    assert [text[slice(*span)] for span in framed] == ["6"]


@pytest.mark.parametrize(
    ("response", "found"),
    [
        (r"\boxed{1}</think> \boxed{2}", True),
        (r"\boxed{1}</think> \boxed{2} \boxed 3", False),
        (r"<think>\boxed{1}", False),
        (r"\boxed{}", False),
        (r"\fbox{2}", False),  # the format that is asked for is \boxed
        (r"\fbox{2} \boxed{2}", True),
        (r"\boxed{" + "1" * (MAX_ANSWER + 1) + "}", False),
    ],
)
def test_one_box(response: str, found: bool) -> None:
    assert has_one_box(response, "</think>") is found
