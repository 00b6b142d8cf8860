"""Runs a study: ``python scripts/study.py all --study demo --jobs 4``; see ngrpo/entrypoints/study_command.py."""

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.entrypoints.study_command import main

if __name__ == "__main__":
    run_main(main)
