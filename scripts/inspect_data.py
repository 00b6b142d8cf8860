"""Shows what a data set holds and what training leaves out of it, and why.

``python scripts/inspect_data.py data.path=TRAIN.json data.eval_path=TEST.json model.path=MODEL``
"""

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.entrypoints.inspect_data_command import main

if __name__ == "__main__":
    run_main(main)
