"""A run's record on disk, and the page made from it.

- ``analysis/``: The pilot study of N-GRPO: where perturbed embeddings lead
- ``curves.py``: Pass@k curves, read back from logged metrics
- ``figures.py``: The charts of the report, as plotly figures without colours: the page gives them those of its theme
- ``page.py``: report.html: one page with everything in it, made from a run's folder
- ``run_progress.py``: The progress of a run as a line: count, bar, elapsed time, time to go, and metrics if they fit
- ``run_records.py``: The records of a run, from which its report is made: iterations, evaluations, rollouts
- ``run_store.py``: A run's record on disk: one line an iteration, one file of rollouts every few iterations
- ``status_line.py``: The status line of a terminal: the current activity and its progress
- ``stored_rollouts.py``: The rollouts of an iteration in the form in which they are stored
- ``token_texts.py``: The text of each token
"""
