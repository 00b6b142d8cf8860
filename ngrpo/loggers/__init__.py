"""Lightning's loggers for runs that are resumed.

- ``csv.py``: A table of metrics, ``metrics.csv``
- ``history.py``: The history of a run in its log files, as earlier processes have written it
- ``journal.py``: The journal of a run: all that was logged, on this disk, for services that take nothing back
- ``journaled.py``: The base of the loggers of services: one row an iteration, and a resumed run that continues
- ``media.py``: Media beside numbers: histograms, pictures, tables, texts and pages
- ``media_adapters.py``: The registry that says how a logger takes media; what it cannot take is left out without a word
- ``mlflow.py``: Runs in MLflow
- ``resumable.py``: The constructor that loggers of resumed runs have in common
- ``scalar_layout.py``: The charts of TensorBoard's tab of custom scalars
- ``tensorboard.py``: Event files for TensorBoard
- ``tensorboard_media.py``: Media in TensorBoard's event files
- ``trackio.py``: Runs in Trackio
- ``wandb.py``: Runs in Weights & Biases
"""

from ngrpo.compat.attributes import serve_old_names

serve_old_names(__name__)
