"""Says of pairs whether the answer is right: ``python scripts/verify.py PAIRS.jsonl``."""

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.entrypoints.verify_command import main

if __name__ == "__main__":
    run_main(main)
