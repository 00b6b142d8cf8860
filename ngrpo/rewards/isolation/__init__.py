"""Rewards in processes of their own, which can be killed.

One protocol (``channel.py``, ``child_process.py``) has two users: the pool of answer checkers (``pool.py``, its child
``judge.py``) and the isolated object of a custom reward or term (``isolated.py``, its child ``isolated_worker.py``).

- ``channel.py``: Messages between a process and its child, over a pair of connected sockets
- ``child_process.py``: Child processes that answer requests: how they are started, asked, timed, killed and replaced,
  and their own side
- ``custom.py``: Custom rewards and terms, isolated so that they can neither hang a run nor take it down
- ``isolated.py``: Custom objects in a process of their own, which is replaced when it hangs or dies
- ``isolated_worker.py``: The process of an isolated object, ``python -m ngrpo.rewards.isolation.isolated_worker``
- ``judge.py``: The answer-checking process, ``python -m ngrpo.rewards.isolation.judge``
- ``pool.py``: The pool of processes that judge answers, each killed and replaced when an answer takes too long
"""
