"""Lightning's loggers for runs that are resumed.

- ``history.py``: What earlier processes of a run have logged
- ``resumable.py``: Lightning's loggers for runs that are resumed: what comes after the checkpoint is dropped, what
  came before stays
"""

from ngrpo.compat.attributes import serve_old_names

serve_old_names(__name__)
