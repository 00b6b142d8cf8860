"""Plans a run's memory, tokens and time: ``python scripts/plan.py model.path=MODEL trainer=gpu``."""

from ngrpo.entrypoints.plan_command import main

if __name__ == "__main__":
    main()
