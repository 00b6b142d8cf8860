"""Evaluates a model: ``python scripts/evaluate.py model.path=FOLDER benchmark=[aime24,math500] n=32``.

See conf/evaluate.yaml. Interrupted, the same command with the same ``out=FOLDER`` keeps the finished problems.
"""

from ngrpo.entrypoints.evaluate_command import main

if __name__ == "__main__":
    main()
