r"""Where a response states its answer: the last ``\boxed{...}`` after the reasoning."""

import re

# One token of LaTeX that matters here. An escaped character is a token of its own, so that the braces of a
# set, ``\{1,2\}``, are not counted. The last group is the brace-less form ``\boxed 42``; it must start like
# mathematics, or "put it in \boxed format" would count as an answer.
_TOKEN = re.compile(
    r"""\\boxed(?![A-Za-z])\s*(?:
            (?P<open>\{)
          | (?P<bare>(?=[-+]?\.?\d|[-+]?\\[A-Za-z])(?:\{[^{}]*\}|(?!\\[)\]])[^\s${}])+)
        )
      | \\. | [{}]""",
    re.VERBOSE | re.DOTALL,
)


def last_boxed(text: str) -> str | None:
    r"""Return the content of the complete box that opens last.

    Braces are counted, so ``\boxed{\frac{1}{2}}`` gives ``\frac{1}{2}``; of nested boxes the inner one opens
    last. A box that is never closed is passed over: an earlier complete one counts. ``\boxed 42`` extends to the
    next space, dollar sign or closing bracket of the formula. One pass: the time is linear in the length of the
    text.

    Args:
        text: any text.

    Returns:
        The content without surrounding spaces; None if there is no such box, or nothing in it.
    """
    return max(boxes(text), default=(-1, ""))[1] or None


def boxes(text: str) -> list[tuple[int, str]]:
    r"""Return every complete box as (where its content starts, content), in the order they close.

    Args:
        text: any text.
    """
    found: list[tuple[int, str]] = []
    opened: list[int | None] = []  # one entry a brace still open: where a box's content starts, None for others
    for token in _TOKEN.finditer(text):
        if token["open"]:
            opened.append(token.end())
        elif token["bare"]:
            found.append((token.start("bare"), token["bare"]))
        elif token[0] == "{":
            opened.append(None)
        elif token[0] == "}" and opened:
            start = opened.pop()
            if start is not None:
                found.append((start, text[start : token.start()].strip()))
    return found


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
      before the response (`ngrpo.rollout.worker`).

    Args:
        response: the decoded response, special tokens that mark reasoning included.
        reasoning_end: the marker that closes a reasoning block, or None.

    Returns:
        The content of the last box, or None.
    """
    return last_boxed(_searched(response, reasoning_end))


def answers_of(response: str, reasoning_end: str | None) -> list[str]:
    r"""Return the content of every complete box in the part of a response that `answer_of` searches.

    Args:
        response: as there.
        reasoning_end: as there.
    """
    return [content for _, content in boxes(_searched(response, reasoning_end))]


def _searched(response: str, reasoning_end: str | None) -> str:
    if reasoning_end is None:
        return response
    rest = after_reasoning(response, reasoning_end)
    begin = reasoning_end.replace("/", "", 1)
    unfinished = begin != reasoning_end and begin in rest
    return "" if unfinished else rest
