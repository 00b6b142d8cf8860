"""A run's record on disk, and the page made from it.

- ``analysis/``: The pilot study of N-GRPO: where perturbed embeddings lead
- ``browsable.py``: The rollouts that the page lets one browse, as its script reads them
- ``chart.py``: A chart of the report as data, without colours: the page gives it those of its theme
- ``compared_runs.py``: The runs of a comparison: what each is called, and which differ in the seed alone
- ``comparison_page.py``: The page that compares several runs
- ``curves.py``: Pass@k curves, read back from logged metrics
- ``evaluation_charts.py``: The charts of what the policy learned: reward, Pass@k, and each problem over time
- ``figures.py``: The charts of one run, section by section
- ``html.py``: The templates of the pages, and the scripts and styles that go into them
- ``intervals.py``: Pass@k of a recorded evaluation, problem by problem and with its interval
- ``metric_charts.py``: The charts of what is logged each iteration: which metrics, their titles, units and how they
  are read
- ``model_card.py``: The model card of an exported policy: README.md, with the metadata that the Hub reads
- ``overlays.py``: The charts of several runs: one a metric, a line a run
- ``page.py``: report.html: one page with everything in it, made from a run's folder
- ``paired_runs.py``: Paired differences between runs: on the same problems, with the same seeds
- ``run_description.py``: The description of a run: what was trained on what, where and how
- ``run_facts.py``: The top of the page: the run's figures, and what the run was
- ``run_progress.py``: The progress of a run as a line: count, bar, elapsed time, time to go, and metrics if they fit
- ``run_records.py``: The records of a run, from which its report is made: iterations and rollouts
- ``run_store.py``: A run's record on disk: one line an iteration, one file of rollouts every few iterations
- ``status_line.py``: The status line of a terminal: the current activity and its progress
- ``stored_rollouts.py``: The rollouts of an iteration in the form in which they are stored
- ``token_texts.py``: The text of each token
- ``warning_collector.py``: The warnings that a run gives, kept for its report
"""
