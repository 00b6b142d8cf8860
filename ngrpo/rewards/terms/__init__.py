r"""Reward terms: what is added to correctness, by weight.

- ``base.py``: The reward of a response as a weighted sum: correctness, and whatever terms the run adds to it
- ``calls.py``: Calls of rewards that the user may have written, and error messages that name the response
- ``count_bonus.py``: A count-based exploration bonus for rare answers
- ``one_box.py``: Rewards for the format: exactly one ``\boxed{...}``, or any
- ``overlong.py``: DAPO's soft overlong punishment
- ``repetition.py``: A punishment for repeated n-grams
- ``reward_warnings.py``: Warnings of rewards of which nothing is learned, or something else than they say
- ``results.py``: Results of rewards that the user has written, as numbers and scores, or what is wrong with them
"""

from ngrpo.compat.attributes import serve_old_names

serve_old_names(__name__)
