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
    r"""Return the content of the complete, non-empty box that opens last.

    Braces are counted, so ``\boxed{\frac{1}{2}}`` gives ``\frac{1}{2}``; of nested boxes the inner one opens
    last. A box that is never closed is passed over (an earlier complete one counts), and so is an empty
    one, which quotes the instruction rather than answering. ``\boxed 42`` extends to the next space, dollar
    sign or closing bracket of the formula. One pass: the time is linear in the length of the text.

    Args:
        text: any text.

    Returns:
        The content without surrounding spaces, or None if there is no such box.
    """
    last_start, last_content = -1, None
    opened: list[int | None] = []  # one entry a brace still open: where a box's content starts, None for others
    for token in _TOKEN.finditer(text):
        if token["open"]:
            opened.append(token.end())
        elif token["bare"]:
            last_start, last_content = token.start("bare"), token["bare"]
        elif token[0] == "{":
            opened.append(None)
        elif token[0] == "}" and opened:
            start = opened.pop()
            if start is not None and start > last_start and (content := text[start : token.start()].strip()):
                last_start, last_content = start, content
    return last_content


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

    - the marker occurs: only what follows its last occurrence is searched, so a guess that is boxed while
      reasoning never counts;
    - the marker is absent but the response itself opens a block (``<think>`` for ``</think>``): the reasoning
      is unfinished and there is no answer;
    - neither occurs: the whole response is searched, because the model may be one that has no reasoning
      blocks. A response cut off inside a block that its *prompt* opened looks the same and is treated so.

    Args:
        response: the decoded response, special tokens that mark reasoning included.
        reasoning_end: the marker that closes a reasoning block, or None.

    Returns:
        The content of the last box, or None.
    """
    if reasoning_end is None:
        return last_boxed(response)
    begin = reasoning_end.replace("/", "", 1)
    if begin in response and reasoning_end not in response:
        return None
    return last_boxed(after_reasoning(response, reasoning_end))
