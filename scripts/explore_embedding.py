"""Where noise and mixing lead: ``python scripts/explore_embedding.py --model MODEL --out FOLDER``."""

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.entrypoints.explore_embedding_command import main

if __name__ == "__main__":
    run_main(main)
