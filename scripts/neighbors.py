"""Prints the nearest embedding rows of words: ``python scripts/neighbors.py seven finds apples``."""

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.entrypoints.neighbors_command import main

if __name__ == "__main__":
    run_main(main)
