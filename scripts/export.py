"""Writes a checkpoint's policy as a Hugging Face folder: ``python scripts/export.py RUN_OR_CHECKPOINT TARGET``."""

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.entrypoints.export_command import main

if __name__ == "__main__":
    run_main(main)
