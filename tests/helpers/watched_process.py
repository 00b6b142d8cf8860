"""A process with another that it started: prints the latter's pid and waits.

python watched_process.py spawn|popen ending|leaving GRACE_S
"""

import multiprocessing
import os
import subprocess
import sys
import time
from contextlib import nullcontext

from ngrpo.distributed.parent_watch import end_with_parent, ending_children


def child(grace_s: float) -> None:
    end_with_parent(grace_s)
    print(os.getpid(), flush=True)
    time.sleep(300)


if __name__ == "__main__":
    how, kind, grace = sys.argv[1:]
    end_with_parent()  # of itself, which nobody asked to end it
    if how == "child":
        child(float(grace))
    with ending_children() if kind == "ending" else nullcontext():
        if how == "spawn":
            multiprocessing.get_context("spawn").Process(target=child, args=(float(grace),)).start()
        else:
            subprocess.Popen([sys.executable, __file__, "child", kind, grace])
    time.sleep(300)
