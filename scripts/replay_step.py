"""Looks again at a skipped optimiser step: ``python scripts/replay_step.py RUN/bad_steps/FILE.pt --checkpoint RUN``."""

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.entrypoints.replay_step_command import main

if __name__ == "__main__":
    run_main(main)
