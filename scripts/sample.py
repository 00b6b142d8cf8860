"""Samples responses to a prompt, and shows what was mixed: ``python scripts/sample.py MODEL "PROMPT"``."""

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.entrypoints.sample_command import main

if __name__ == "__main__":
    run_main(main)
