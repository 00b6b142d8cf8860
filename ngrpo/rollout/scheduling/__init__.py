"""Schedulers: which requests make the responses to a prompt, from independent samples to trees.

A scheduler (`base`) sees the `tree` of a prompt and asks for branches; `growth` makes requests of them, round by round,
and rollouts of what comes back. Each of the other modules is a scheduler.

- ``at_positions.py``: Forks at chosen positions of a response: where it was least sure, or drew a rare token, or was
  fed a mixture
- ``at_share.py``: Forks at shares of the length of a response
- ``base.py``: The contract of schedulers: which requests make the responses to a prompt, round by round
- ``growth.py``: The growth of trees: branches become requests, and their rollouts the responses of a tree
- ``independent.py``: Independent samples: every response starts from the prompt
- ``latr.py``: Responses that grow side by side, and fork where two tokens are nearly as likely (LATR)
- ``outcomes.py``: Outcomes of groups, for schedulers that learn from them
- ``prefix_sampling.py``: Prefix sampling: hard problems continue a right response, easy ones a wrong response
- ``segments.py``: Forks at the ends of segments of fixed length (TreePO)
- ``tree.py``: The tree of responses to a prompt, as far as it has grown
"""
