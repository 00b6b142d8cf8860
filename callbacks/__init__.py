"""Lightning callbacks, one class a file; imported as ``ngrpo.callbacks``.

A callback of your own is added by ``+callbacks.mine._target_=my_callbacks.Mine +callbacks.mine.every=5``. Its other
parameters are given by name: one that is called like a part of the run (`ngrpo.entrypoints.run_parts.RunParts`:
``worker``, ``tokenizer``, ``datamodule``, ``run_dir``, ``iterations``, ...) gets that part; a parameter that is neither
a part nor set, and has no default, is refused at the start with the list of parts. Its hooks are called after those of
the callbacks below and before the checkpoint's, so its ``state_dict`` is saved of the present iteration.

- ``best.py``: The record of the best checkpoint by a metric
- ``checkpoint.py``: Checkpoints of the whole run every few iterations, complete or not at all
- ``collapse_warnings.py``: Warnings, each once, of a training that collapses
- ``engine_check.py``: The comparison of the rollout engine with PyTorch, before the first iteration
- ``evaluation.py``: Evaluation on held-out problems before, during and after training
- ``exploration_monitor.py``: Metrics of what exploration did to the rollouts
- ``export.py``: The trained policy as a Hugging Face folder, and on the Hub
- ``fresh_metrics.py``: The reset of metrics before each iteration
- ``health.py``: Signs of trouble as metrics: what is warned of once shows at every iteration
- ``histograms.py``: Distributions: advantages, importance ratios, response lengths
- ``memory.py``: Peak memory of the run
- ``mismatch_limit.py``: The limit on how far the engine's log-probs may be from the trainer's
- ``model_check.py``: The comparison of trainer and engine with the model's own logits, before the first iteration
- ``pass_at_k_figure.py``: Pass@k curves as figures
- ``progress.py``: The progress of the run, on the terminal and in the log
- ``random_state.py``: The states of all global random generators, in checkpoints
- ``rollout.py``: The rollout callback: scored rollouts before each update, weights to the engine after it
- ``rollout_metrics.py``: Reward, Pass@k, lengths and speed of the training rollouts
- ``rollout_report.py``: Sample rollouts as a table
- ``run_record.py``: The record that the report page is made from, and the page
- ``run_settings.py``: The settings of the run, in every logger
- ``solution_paths.py``: The number of distinct solution paths among the rollouts of a group
- ``stopping.py``: The stop on request: the iteration is finished and saved, and the run says how to resume
- ``summary.py``: The run's summary.json, and the closing table on the terminal
"""

import sys

if __name__ == "callbacks":  # from the top of a checkout: a second copy of every class would be made
    from ngrpo.compat.import_hook import serve_old_callbacks

    sys.modules[__name__] = serve_old_callbacks()
