"""Scores rollouts again, and compares trainer and engine: ``python scripts/check_replay.py --model FOLDER``."""

from ngrpo.entrypoints.check_replay_command import main
from ngrpo.entrypoints.error_handling import run_main

if __name__ == "__main__":
    run_main(main)
