"""What the scripts call.

- ``arguments.py``: Numbers on the command lines of the scripts: outside their range they are refused by the usage,
  before any work
- ``components.py``: The parts of a run that the settings name, before a file of model or data has been read
- ``config_snapshot.py``: The settings of a run, in its folder
- ``console.py``: Log records on the console that the progress bar lives on
- ``demo_model_command.py``: The command line that makes a demo model: its tokenizer, and weights pretrained on
  generated word problems
- ``error_handling.py``: What the scripts do with errors: for whatever a user can fix, one line on the terminal and an
  exit status
- ``evaluate.py``: Evaluates a model without training it
- ``evaluate_command.py``: The command line of an evaluation: ``python -m ngrpo.entrypoints.evaluate_command
  model.path=FOLDER``
- ``hydra_main.py``: Hydra's main, without what a file could make Hydra itself run
- ``input_validation.py``: Checks of settings against the model's files, its tokenizer and the machine, before any
  model is loaded
- ``method_tables.py``: What can be chosen with ``exploration=`` and ``algo=``, read from the yamls and the classes
  that they build
- ``rank_watch.py``: What is said when another training process of this machine ends before its time, which it may not
  have said itself
- ``replay_step.py``: Looking again at an optimiser step that was skipped: sample by sample, which numbers are not
  finite
- ``run_parts.py``: The parts of a run that its callbacks may ask for by name
- ``study_command.py``: The command line of a study: the same training with many methods and seeds, compared with
  intervals
- ``train.py``: The training script: a run put together from its configuration, and made
- ``train_command.py``: The command line of a training run: ``python -m ngrpo.entrypoints.train_command
  exploration=neighbor algo=gspo``
- ``trainer.py``: The Lightning trainer of a run, and the processes that it stands for
- ``validation.py``: Checks of settings against each other, before any model is loaded
"""
