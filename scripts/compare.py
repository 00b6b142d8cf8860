"""Compares evaluations problem by problem: ``python scripts/compare.py RUN RUN [RUN ...]``."""

from ngrpo.entrypoints.compare_command import main
from ngrpo.entrypoints.error_handling import run_main

if __name__ == "__main__":
    run_main(main)
