"""Trains a policy: ``python scripts/train.py exploration=neighbor algo=gspo``; see conf/train.yaml."""

from ngrpo.entrypoints.train_command import main

if __name__ == "__main__":
    main()
