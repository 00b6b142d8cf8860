r"""The answer-checking process: ``python -m ngrpo.rewards.isolation.judge SECONDS MEBIBYTES``.

It prints the line ``ready`` and then answers each JSON line ``{"reference": ..., "answer": ...}`` with a line
``{"verdict": ...}``, until its input ends. It has no time limit that an answer could escape by holding the
interpreter: the pool kills it, and should the pool be gone, the kernel's alarm does after SECONDS. The kernel
also refuses it more than MEBIBYTES beyond what it needs before the first answer.
"""

import json
import logging
import resource
import signal
import sys
from pathlib import Path

from ngrpo.distributed.parent_watch import leave_signals_to_parent
from ngrpo.rewards.answers.read import read_answer
from ngrpo.rewards.answers.reading import equal
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


def limit_memory(mebibytes: int) -> None:
    """Let this process have so much more address space than it has now, and no more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + mebibytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    """Answer requests from stdin until it ends."""
    alarm_s, mebibytes = float(sys.argv[1]), int(sys.argv[2])
    leave_signals_to_parent()
    logging.disable(logging.WARNING)
    out, sys.stdout = sys.stdout, sys.stderr  # nothing that a library prints may enter the protocol
    for warm_up in (r"\frac{x}{2}+\sqrt{3}", r"0<x<1", r"\pm 2"):  # pays for lazy imports and tables
        judge(warm_up, warm_up + "y")
    limit_memory(mebibytes)
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, alarm_s)
        try:
            verdict = judge(request["reference"], request["answer"])
        except MemoryError:  # what has been allocated may not come back: the pool starts another process
            print(json.dumps({"verdict": Verdict.CRASHED}), file=out, flush=True)
            return
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps({"verdict": verdict}), file=out, flush=True)


if __name__ == "__main__":
    main()
