"""Lightning callbacks, one class a file; imported as ``ngrpo.callbacks``.

A callback of your own is added by ``+callbacks.mine._target_=my_callbacks.Mine +callbacks.mine.every=5``. Its other
parameters are given by name: one that is called like a part of the run (`ngrpo.entrypoints.run_parts.RunParts`:
``worker``, ``tokenizer``, ``datamodule``, ``run_dir``, ``iterations``, ...) gets that part; a parameter that is neither
a part nor set, and has no default, is refused at the start with the list of parts. Its hooks are called after those of
the callbacks below and before the checkpoint's, so its ``state_dict`` is saved of the present iteration.

- ``best.py``: Which checkpoint is the best so far by a metric
- ``checkpoint.py``: Saves the whole run every few iterations, complete or not at all
- ``collapse_warnings.py``: Warnings, each once, when training goes where it usually does not come back from
- ``evaluation.py``: Evaluation on held-out problems before, during and after training
- ``exploration_monitor.py``: What exploration did to the rollouts
- ``export.py``: The trained policy as a Hugging Face folder
- ``fresh_metrics.py``: Metrics are those of their own iteration
- ``histograms.py``: Distributions in TensorBoard: advantages, importance ratios, response lengths
- ``memory.py``: The memory that the run needs
- ``mismatch_limit.py``: A limit on how far the engine's log-probs may be from the trainer's, from the first iteration
  on
- ``model_check.py``: The comparison of trainer and engine with the model's own logits, before the first iteration
- ``pass_at_k_figure.py``: Pass@k curves as figures in TensorBoard
- ``progress.py``: Where the run stands, on the terminal and in the log
- ``random_state.py``: The state of every global random generator in checkpoints
- ``rollout.py``: The rollout callback: scored rollouts before each update, weights to the engine after it
- ``rollout_metrics.py``: Reward, Pass@k, lengths and speed of the training rollouts
- ``rollout_report.py``: Sample rollouts as text in TensorBoard
- ``run_record.py``: What the report page is made from, stored on the way, and the page
- ``solution_paths.py``: In how many ways the rollouts of a group reach their answers
- ``stopping.py``: Stopping on request: the iteration is finished and saved, and the run says how to resume
- ``summary.py``: summary.json in the run's folder, and the closing table on the terminal
"""

import sys

if __name__ == "callbacks":  # from the top of a checkout: a second copy of every class would be made
    from ngrpo.compat.import_hook import serve_old_callbacks

    sys.modules[__name__] = serve_old_callbacks()
