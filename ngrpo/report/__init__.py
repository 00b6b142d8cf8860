"""A run's record on disk, and the page made from it.

- ``analysis/``: The pilot study of N-GRPO: where perturbed embeddings lead
- ``curves.py``: Pass@k read back from logged metrics
- ``figures.py``: The charts of the report, as plotly figures without colours: the page gives them those of its theme
- ``page.py``: report.html: one page with everything in it, made from a run's folder
- ``pieces.py``: Token ids as pieces of text
- ``records.py``: What is kept of a run for its pictures
- ``rollouts.py``: From an iteration's experience to what is stored of it
- ``run_store.py``: A run's record on disk: one line an iteration, one file of rollouts every few iterations
- ``status_line.py``: One line of a terminal that says what is being done and how far it is
"""
