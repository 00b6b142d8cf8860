"""Runs the comparison at start-up on one model: ``python scripts/check_start.py --model FOLDER``."""

from ngrpo.entrypoints.check_start_command import main
from ngrpo.entrypoints.error_handling import run_main

if __name__ == "__main__":
    run_main(main)
