"""Writes a run's report page anew: ``python scripts/report.py RUN``."""

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.entrypoints.report_command import main

if __name__ == "__main__":
    run_main(main)
