"""Lists the exploration strategies and the algorithms: ``python scripts/list_methods.py``."""

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.entrypoints.list_methods_command import main

if __name__ == "__main__":
    run_main(main)
