"""Evaluation: Mean@k, Pass@k, reports.

- ``answer_sampling.py``: The sampling of a benchmark's missing answers, stored as problems finish
- ``answer_store.py``: Answers on disk: parquet shards of finished problems, each there whole or not at all
- ``answer_table.py``: The answers of one benchmark, as rows of a table and as tensors for the estimators
- ``benchmark.py``: A benchmark: its source of problems, the fields they are read from, and the prompt
- ``benchmark_report.py``: The report of a benchmark, computed from its stored answers alone
- ``bootstrap.py``: Confidence intervals of means over problems
- ``estimators.py``: Estimators of success at k attempts
- ``evaluation_result.py``: The result of one evaluation of a run
- ``evaluator.py``: Mean@1 and Pass@k of the served policy on a set of prompts
- ``identity.py``: The identity of what is evaluated, by which stored answers and evaluations of a run are matched
- ``ks.py``: The values of k for which Pass@k is reported
- ``metrics.py``: Pass@k and mean@k as torchmetrics, right under several processes because their states are sums
- ``multiple_choice.py``: Multiple-choice problems: options in a fixed random order, answered by a letter
- ``paired_comparison.py``: Paired differences between evaluations of the same problems
- ``solution_paths.py``: The solution path of a response, by which responses that reason alike are recognised
- ``table_rows.py``: The metrics that a table shows: Pass@1 is the mean, and stands in no table beside it
- ``tables.py``: Reports as tables for the terminal
"""
