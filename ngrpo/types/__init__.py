"""The data that is passed everywhere: problems and prompts, requests and rollouts, their records and scores.

- ``distributions.py``: The distributions that the tokens of a response were drawn from, as far as they are recorded
- ``experience.py``: The rollout batch of a rank: prompts, rollouts, scores
- ``paths.py``: Paths of responses that have first tokens in common: which node of a tree each token belongs to
- ``problems.py``: Problems that a source yields, and prompts that engines take
- ``records.py``: Decisions and records of a strategy: one set of channels in engines, rollouts and trainer
- ``rollouts.py``: Requests to a rollout engine, and the rollouts that it returns
- ``scores.py``: The score of a response: its reward, and the verdict on its answer
- ``serialization.py``: Serialization of rollouts and experiences: primitives and tensors, which run no code when they
  are read
- ``support.py``: The supports of a response: the sets of token ids that its tokens were drawn from
"""
