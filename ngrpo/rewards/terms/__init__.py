r"""Reward terms: what is added to correctness, by weight.

- ``base.py``: The reward of a response as a weighted sum: correctness, and whatever terms the run adds to it
- ``calls.py``: Calling rewards that the user may have written
- ``count_bonus.py``: A bonus for answers that were seldom given
- ``one_box.py``: Rewards for the format: exactly one ``\boxed{...}``, or any
- ``overlong.py``: DAPO's soft overlong punishment
- ``repetition.py``: A punishment for responses that go round in circles
"""

from ngrpo.compat.attributes import serve_old_names

serve_old_names(__name__)
