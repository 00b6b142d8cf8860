"""What is passed everywhere: problems, rollouts, their records and scores.

- ``experience.py``: A rank's share of a rollout batch: prompts, rollouts, rewards
- ``problems.py``: What a source yields and what the engines take
- ``records.py``: What a strategy decides and records; one set of channels in engines, rollouts and trainer
- ``rollouts.py``: What goes into a rollout engine and what comes out of it
- ``scores.py``: The score of a response: its reward, and the verdict on its answer
"""
