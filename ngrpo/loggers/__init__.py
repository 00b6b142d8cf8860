"""Lightning's loggers for runs that are resumed.

- ``csv.py``: A table of metrics, ``metrics.csv``
- ``history.py``: The history of a run in its log files, as earlier processes have written it
- ``resumable.py``: The constructor that loggers of resumed runs have in common
- ``tensorboard.py``: Event files for TensorBoard
"""

from ngrpo.compat.attributes import serve_old_names

serve_old_names(__name__)
