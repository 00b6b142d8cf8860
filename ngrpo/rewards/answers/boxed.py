r"""The stated answer of a response: the last ``\boxed{...}`` after the reasoning.

A response is searched in the trainer's process, which no limit protects. So time and memory are linear in its length,
whatever stands in it: braces are counted in one pass, no part of the pattern is tried twice (``++`` and ``*+`` give
nothing back), boxes are places in the text and not copies, and of at most `MAX_ANSWER` characters one copy is made.
"""

import re

MAX_ANSWER = 2_000
"""Most characters of an answer; what is longer is none, and never reaches the verifier."""

# One token of LaTeX that matters here. An escaped character is a token of its own, so that the braces of a
# set, ``\{1,2\}``, are not counted. The last group is the brace-less form ``\boxed 42``; it must start like
# mathematics, or "put it in \boxed format" would count as an answer.
_TOKEN = re.compile(
    r"""\\(?P<command>boxed|fbox)(?![A-Za-z])\s*+(?P<open>\{)
      | \\boxed(?![A-Za-z])\s*+(?P<bare>(?=[-+]?\.?\d|[-+]?\\[A-Za-z])(?:\{[^{}]*+\}|(?!\\[)\]])[^\s${}])++)
      | \\. | [{}]""",
    re.VERBOSE | re.DOTALL,
)

Span = tuple[int, int]
"""Where the content of a box starts and ends in a text."""


def last_boxed(text: str) -> str | None:
    r"""Return the content of the complete box that opens last.

    Braces are counted, so ``\boxed{\frac{1}{2}}`` gives ``\frac{1}{2}``; of nested boxes the inner one opens
    last. A box that is never closed is passed over: an earlier complete one counts. ``\boxed 42`` extends to the
    next space, dollar sign or closing bracket of the formula. ``\fbox{42}`` is a box only in a text without a
    complete ``\boxed``.

    Args:
        text: any text.

    Returns:
        The content without surrounding spaces; None if there is no such box, nothing in it, or more than `MAX_ANSWER`
        characters.
    """
    boxed, framed = boxes(text)
    return _content(text, max(boxed or framed, default=(0, 0)))


def boxes(text: str) -> tuple[list[Span], list[Span]]:
    r"""Return where every complete ``\boxed`` is, and every complete ``\fbox``, in the order they close.

    Args:
        text: any text.
    """
    found: dict[str, list[Span]] = {"boxed": [], "fbox": []}
    opened: list[tuple[str, int] | None] = []  # one entry a brace still open: the box it opens, None for others
    for token in _TOKEN.finditer(text):
        if token["open"]:
            opened.append((token["command"], token.end()))
        elif token["bare"]:
            found["boxed"].append(token.span("bare"))
        elif token[0] == "{":
            opened.append(None)
        elif token[0] == "}" and opened and (box := opened.pop()) is not None:
            found[box[0]].append((box[1], token.start()))
    return found["boxed"], found["fbox"]


def _content(text: str, span: Span) -> str | None:
    content = text[slice(*span)].strip()
    return content if 0 < len(content) <= MAX_ANSWER else None


def after_reasoning(text: str, end: str = "</think>") -> str:
    """Return what follows the last closing marker, or the whole text if there is none.

    The last and not the first: whatever the number of reasoning blocks, nothing after the last marker is
    inside a closed one, and it is the part that chat templates keep as the model's turn.

    Args:
        text: a response.
        end: the marker that closes a reasoning block.
    """
    return text.rpartition(end)[2]


def answer_of(response: str, reasoning_end: str | None) -> str | None:
    r"""Return the answer that a response states in its last box.

    With ``reasoning_end`` None the whole response is searched. Otherwise:

    - only what follows the marker's last occurrence is searched, so a guess that is boxed while reasoning
      never counts;
    - if a block is open there (``<think>`` for ``</think>``), the reasoning is unfinished and there is no
      answer;
    - if neither occurs, the whole response is searched: the model may be one that has no reasoning blocks. Where
      the prompt ends inside a block, as templates that prefill ``<think>`` make it, the caller puts that marker
      before the response (`ngrpo.rollout.response_decoding`).

    Args:
        response: the decoded response, special tokens that mark reasoning included.
        reasoning_end: the marker that closes a reasoning block, or None.

    Returns:
        The content of the last box, or None.
    """
    return last_boxed(_searched(response, reasoning_end))


def has_one_box(response: str, reasoning_end: str | None) -> bool:
    r"""Say whether the part of a response that `answer_of` searches has one complete ``\boxed`` with an answer in it.

    Args:
        response: as there.
        reasoning_end: as there.
    """
    searched = _searched(response, reasoning_end)
    boxed, _ = boxes(searched)
    return len(boxed) == 1 and _content(searched, boxed[0]) is not None


def _searched(response: str, reasoning_end: str | None) -> str:
    if reasoning_end is None:
        return response
    rest = after_reasoning(response, reasoning_end)
    begin = reasoning_end.replace("/", "", 1)
    unfinished = begin != reasoning_end and begin in rest
    return "" if unfinished else rest
