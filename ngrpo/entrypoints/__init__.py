"""The code behind the scripts and the command line.

- ``algorithm_trial.py``: The trial call of an algorithm's functions, on a few made-up tokens, before any model is
  loaded
- ``arguments.py``: Types for argparse: numbers in a range, refused by the usage before any work
- ``changed_settings.py``: The settings of a run that differ from the defaults of what it has chosen
- ``check_replay_command.py``: The command line that compares trainer and engine: log-probs of rollouts at mixed and
  plain positions, scored again
- ``check_start_command.py``: The command line of the comparison at start-up, for one model: its figures as JSON,
  status 1 where it would refuse
- ``command.py``: The console command ``ngrpo``: one subcommand for each script, and ``init``
- ``compare_command.py``: The command line that compares evaluations problem by problem
- ``components.py``: The parts of a run that the settings name, before a file of model or data has been read
- ``composition.py``: Settings composed without Hydra's command line, with the same permissions as on it
- ``config_snapshot.py``: The snapshot of a run's settings in its folder
- ``console.py``: The handler of log records on the console that the progress bar is drawn on
- ``demo_model_command.py``: The command line that makes a demo model: its tokenizer, and weights pretrained on
  generated word problems
- ``described_run.py``: The description of a run, taken from its configuration and parts
- ``engine_choice.py``: The engine of ``rollout=auto``, chosen by the whole configuration and written into it
- ``engine_comparison.py``: The comparison of an engine with PyTorch before an evaluation or samples, for which no
  policy is loaded
- ``error_handling.py``: The error handling of the scripts: one line and an exit status for whatever a user can fix
- ``evaluate.py``: The evaluation of a model without training it
- ``evaluate_command.py``: The command line of an evaluation: ``ngrpo evaluate model.path=FOLDER``
- ``evaluation_replicas.py``: Replicas of the model, one a device, that answer an evaluation's problems side by side,
  each in its own process
- ``evaluation_worker.py``: The worker that answers the problems of an evaluation
- ``exact_check.py``: The checks of ``rollout.exact``: that engine, model, strategy and trainer can give a token the
  same log-prob
- ``explore_embedding_command.py``: The command line of the pilot study of N-GRPO, for any model
- ``export_command.py``: The command line that writes a checkpoint's policy as a Hugging Face folder
- ``hydra_main.py``: Hydra's main, without what a file could make Hydra itself run
- ``init_command.py``: The command line that writes a small project: settings, a strategy, a reward, data and a test
- ``input_validation.py``: Checks of settings against the model's files, its tokenizer and the machine, before any
  model is loaded
- ``inspect_data_command.py``: The command line that shows what a data set holds, and what training excludes and why
- ``list_methods_command.py``: The command line that lists the exploration strategies and the algorithms
- ``made_up_responses.py``: Responses that nobody has generated, to problems of the data, for trial calls of rewards
  and terms
- ``method_tables.py``: The tables of strategies and algorithms, read from the yamls and the classes that they build
- ``neighbors_command.py``: The command line that prints the nearest embedding rows of words
- ``override_words.py``: Settings given as Python values, as words of the command line
- ``plan.py``: The plan of a run: its memory, tokens and time from the configuration alone
- ``plan_command.py``: The command line that plans a run: memory per device, tokens and seconds an iteration, and what
  to change
- ``planned_run.py``: A run's settings as its plan needs them, read from the configuration; no engine is built and no
  weights are read
- ``planned_start.py``: The plan of a training's memory at its start: one line, and a refusal of what certainly cannot
  fit
- ``python_api/``: The Python interface: what ``ngrpo.train``, ``ngrpo.sample`` and the other functions of ``import
  ngrpo`` do
- ``rank_watch.py``: The watch over the other training processes of this machine, and the reason why one of them ended
- ``refused_run.py``: The removal of the folder of a refused command, in which nothing but its log or lock has been
  written
- ``replay_step.py``: The replay of a skipped optimiser step: sample by sample, which numbers are not finite
- ``replay_step_command.py``: The command line that replays a skipped optimiser step
- ``report_command.py``: The command line that writes a run's report page anew, or a page that compares several runs
- ``reward_trial.py``: The trial call of rewards, with made-up responses to problems of the data, before anything
  is generated
- ``run_parts.py``: The parts of a run that its callbacks may ask for by name
- ``sample.py``: Responses to prompts, sampled as the rollouts of a training are
- ``sample_command.py``: The command line that samples responses to a prompt, and shows what was mixed
- ``sampled_rollout.py``: A rollout as ``ngrpo.sample`` returns it: with its text, and its mixtures in words
- ``scheduler_trial.py``: The trial growth of a scheduler's trees, of made-up responses, before any model is loaded
- ``serve.py``: A server of rollouts, made from its configuration
- ``serve_command.py``: The command line of a server of rollouts: ``ngrpo serve MODEL exploration=neighbor``
- ``state_check.py``: The check whether the state of a user's own object can be saved in a checkpoint and read
  again
- ``study_command.py``: The command line of a study: the same training with many methods and seeds, compared with
  intervals
- ``train.py``: Training from a configuration: build the parts, check them, fit
- ``train_command.py``: The command line of a training run: ``ngrpo train exploration=neighbor algo=gspo``
- ``trainer.py``: The Lightning trainer of a run, and the processes that it stands for
- ``trial_call.py``: The trial call of a user's own code, whose exception becomes a refusal beside its traceback
- ``validation.py``: Checks of settings against each other, before any model is loaded
- ``verify_command.py``: The command line that says of pairs whether the answer is right
- ``vllm_endpoint.py``: The endpoint plugin of vLLM: ``vllm serve`` with this project's interface below ``/ngrpo``,
  beside vLLM's own
"""
