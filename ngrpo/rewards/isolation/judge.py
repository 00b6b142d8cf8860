r"""The answer-checking process, ``python -m ngrpo.rewards.isolation.judge``.

It has no time limit that an answer could escape by holding the interpreter: it is killed from outside. The kernel
refuses it more memory than the pool allows beyond what it needs before the first answer.
"""

import json
import logging
import resource
import sys
from pathlib import Path

from ngrpo.rewards.answers.read import read_answer
from ngrpo.rewards.answers.reading import equal
from ngrpo.rewards.isolation.child_process import serve
from ngrpo.types.scores import Verdict


def judge(reference: str, answer: str) -> Verdict:
    """Compare an answer with its reference; may take arbitrarily long.

    A comparison that its libraries cannot carry through has not shown the two to be equal.

    Args:
        reference: LaTeX or plain text without a box, e.g. ``"142.0"``.
        answer: the content of the box, likewise.

    Raises:
        MemoryError: the comparison needs more memory than there is.
    """
    try:
        expected = read_answer(reference)
        if expected is None:
            return Verdict.UNPARSABLE_REFERENCE
        given = read_answer(answer)
        return Verdict.CORRECT if given is not None and equal(expected, given) else Verdict.WRONG
    except MemoryError:
        raise
    except Exception:
        return Verdict.WRONG


class JudgeService:
    """Answers JSON pairs ``[reference, answer]`` with the text of a verdict."""

    def start(self, settings: bytes) -> bytes:
        """Loads the libraries, then limits memory to so many MiB more, a JSON number."""
        logging.disable(logging.WARNING)
        sys.stdout = sys.stderr  # what a library prints is no output of the run
        for warm_up in (r"\frac{x}{2}+\sqrt{3}", r"0<x<1", r"\pm 2"):  # pays for lazy imports and tables
            judge(warm_up, warm_up + "y")
        _limit_memory(json.loads(settings))
        return b""

    def answer(self, request: bytes) -> bytes:
        """Judges a pair; a MemoryError goes to the pool, since what has been allocated may not come back."""
        return judge(*json.loads(request)).encode()


def _limit_memory(mebibytes: int) -> None:
    """Let this process have so much more address space than it has now, and no more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + mebibytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    serve(JudgeService())
