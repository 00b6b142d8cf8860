"""What the scripts call.

- ``arguments.py``: Numbers on the command lines of the scripts: outside their range they are refused by the usage,
  before any work
- ``config_snapshot.py``: The settings of a run, in its folder
- ``console.py``: Log records on the console that the progress bar lives on
- ``demo_model_command.py``: The command line that makes a demo model: its tokenizer, and weights pretrained on
  generated word problems
- ``error_handling.py``: What the scripts do with errors: for whatever a user can fix, one line on the terminal and
  an exit status
- ``evaluate.py``: Evaluates a model without training it
- ``evaluate_command.py``: The command line of an evaluation: ``python -m ngrpo.entrypoints.evaluate_command
  model.path=FOLDER``
- ``hydra_main.py``: Hydra's main, without what a file could make Hydra itself run
- ``input_validation.py``: Faults of settings that show only against the tokenizer, the model or the machine; found
  before a model is loaded
- ``method_tables.py``: What can be chosen with ``exploration=`` and ``algo=``, read from the yamls and the classes
  that they build
- ``rank_watch.py``: What is said when another training process of this machine ends before its time, which it may not
  have said itself
- ``replay_step.py``: Looking again at an optimiser step that was skipped: sample by sample, which numbers are not
  finite
- ``study_command.py``: The command line of a study: the same training with many methods and seeds, compared with
  intervals
- ``train.py``: Puts a run together from its configuration, and runs it
- ``train_command.py``: The command line of a training run: ``python -m ngrpo.entrypoints.train_command
  exploration=neighbor algo=gspo``
- ``validation.py``: Faults that lie between settings; found before any model is loaded
"""
