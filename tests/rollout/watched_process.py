"""A training process with an engine process beside it: prints the latter's pid and waits.

python watched_process.py named | nameless
"""

import multiprocessing
import os
import sys
import time

from ngrpo.rollout.vllm.parent_watch import end_with_trainer, name_trainer


def engine() -> None:
    end_with_trainer()
    print(os.getpid(), flush=True)
    time.sleep(300)


if __name__ == "__main__":
    if sys.argv[1] == "named":
        name_trainer()
    end_with_trainer()  # is called in the training process, too, and does nothing there
    multiprocessing.get_context("spawn").Process(target=engine).start()
    time.sleep(300)
