"""Rewards in processes of their own, which can be killed.

- ``custom.py``: Rewards of the user's own, kept from hanging a run or taking it down
- ``isolated.py``: Objects in a process apart, which can be ended when they hang
- ``isolated_worker.py``: The process of an isolated object: ``python -m ngrpo.rewards.isolation.isolated_worker
  DESCRIPTOR``
- ``judge.py``: The answer-checking process: ``python -m ngrpo.rewards.isolation.judge SECONDS MEBIBYTES``
- ``pool.py``: Judging answers in processes that can be killed
"""
