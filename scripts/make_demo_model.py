"""Makes a demo model: ``python scripts/make_demo_model.py --output FOLDER``; see ``--help``."""

from ngrpo.entrypoints.demo_model_command import main
from ngrpo.entrypoints.error_handling import run_main

if __name__ == "__main__":
    run_main(main)
