"""Evaluation: Mean@k, Pass@k, reports.

- ``answer_store.py``: Answers on disk: parquet shards of finished problems, each there whole or not at all
- ``answers.py``: The answers of one benchmark: as rows of a table, and as what the estimators take
- ``benchmark.py``: A benchmark: which problems, read from which fields, asked how
- ``bootstrap.py``: Confidence intervals of means over problems
- ``collect.py``: Samples what is missing of a benchmark's answers and stores it as problems finish
- ``comparison.py``: Differences between evaluations of the same problems
- ``estimators.py``: Estimators of success at k attempts
- ``evaluator.py``: Mean@1 and Pass@k of the served policy on a set of prompts
- ``identity.py``: What tells whether stored answers and a new evaluation belong together
- ``ks.py``: Which k of Pass@k are reported
- ``metrics.py``: Pass@k and mean@k as torchmetrics, right under several processes because their states are sums
- ``multiple_choice.py``: Multiple-choice problems: options in a fixed order of chance, the answer is a letter
- ``report.py``: The figures of an evaluation, computed from the stored answers and from nothing else
- ``solution_paths.py``: When two responses took the same way to their answers
- ``tables.py``: Reports as tables for the terminal
"""
