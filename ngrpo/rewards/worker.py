r"""The answer-checking process: ``python -m ngrpo.rewards.worker SECONDS``.

It prints the line ``ready`` and then answers each JSON line ``{"reference": ..., "answer": ...}`` with a line
``{"verdict": ...}``, until its input ends. It has no time limit that an answer could escape by holding the
interpreter: the pool kills it, and should the pool be gone, the kernel's alarm does after SECONDS.
"""

import json
import logging
import re
import signal
import sys
from typing import Any

from math_verify import parse, verify

from ngrpo.rewards.verdict import Verdict

# What math-verify 0.9 misreads, each with the form that it reads. It takes an answer for complex only where
# "i" stands alone, "pi" for p times i, and the last letter of "a + b + c" for a unit.
_REWRITES = (
    (re.compile(r"\\?\$"), ""),
    (re.compile(r"(?<=\d)(?:,\\!|\{,\})(?=\d{3})"), ""),
    (re.compile(r"(?<=\d)i\b"), " i"),
    (re.compile(r"(?<![\\A-Za-z])pi(?![A-Za-z])"), r"\\pi"),
    (re.compile(r"\s+"), " "),
    (re.compile(r" ?([-+=]) ?"), r"\1"),
    (re.compile(r"(?<!\\)[\s.,;:]+$"), ""),
)


def tidy(text: str) -> str:
    r"""Return the text as one line of LaTeX without dollar signs and closing punctuation.

    Digit groups written ``1{,}000`` or ``1,\!000`` are joined, ``2i`` becomes ``2 i``, ``pi`` ``\pi`` and
    ``a + b`` ``a+b``.
    """
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return text


def judge(reference: str, answer: str) -> Verdict:
    """Compare an answer with its reference; may take arbitrarily long.

    A reference that yields no expression, or does not even equal itself (1/0), is unparsable. Text that
    math-verify cannot parse is never compared as a string.

    Args:
        reference: LaTeX or plain text without a box, e.g. ``"142.0"``.
        answer: the content of the box, likewise.
    """
    expected = _expressions(reference)
    if verify(expected, _expressions(answer), timeout_seconds=None):
        return Verdict.CORRECT
    if verify(expected, expected, timeout_seconds=None):
        return Verdict.WRONG
    return Verdict.UNPARSABLE_REFERENCE


def _expressions(text: str) -> list[Any]:
    return parse(f"${tidy(text)}$", fallback_mode="no_fallback", parsing_timeout=None)


def main() -> None:
    """Answer requests from stdin until it ends."""
    alarm_s = float(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer, which then ends this process
    logging.disable(logging.WARNING)  # math-verify warns that its own time limits are off
    out, sys.stdout = sys.stdout, sys.stderr  # nothing that a library prints may enter the protocol
    judge("1", "1")  # pays for lazy imports and compiled patterns before the first time limit
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, alarm_s)
        verdict = judge(request["reference"], request["answer"])
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps({"verdict": verdict}), file=out, flush=True)


if __name__ == "__main__":
    main()
