"""Serves rollouts over HTTP: ``python scripts/serve.py MODEL exploration=neighbor``."""

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.entrypoints.serve_command import main

if __name__ == "__main__":
    run_main(main)
