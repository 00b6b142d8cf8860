"""A study: many small runs with different methods, compared with intervals over seeds; see ``scripts/study.py``.

- ``arm_summary.py``: The summary of each arm: means over its seeds, and differences to the reference paired by seed
- ``definition.py``: The definition of a study, from ``conf/study.yaml``: its arms, seeds, learning rates and problems
- ``difficulty.py``: The accuracy of the untrained model by difficulty, from which a study's level is chosen
- ``effect.py``: The effect of mixing: the fraction of mixed steps that change what follows
- ``fingerprint.py``: The fingerprint of a study: the settings that its finished runs were made with, and for which
  alone they count
- ``leaderboard/``: The leaderboard: a file an arm and setting, and the page that is made from them
- ``markdown_tables.py``: The results of a study as markdown tables
- ``mix_until.py``: A strategy that mixes up to a chosen position of each rollout, and samples plainly after it
- ``plots.py``: The results of a study as one figure
- ``primary_family.py``: The primary family: the comparisons named before the runs, corrected for their number
- ``probing.py``: Generation speed and effect of mixing on the untrained model, measured until the deadline and
  continued later
- ``rarefaction.py``: Rarefaction: the expected number of distinct kinds among a fixed number of samples
- ``results.py``: The results of a study, and the files that hold them
- ``room.py``: The room that problems leave to a method: what the untrained model solves once, in many samples, and
  never
- ``run_metrics.py``: The metrics of a finished run, computed from its stored answers and its record
- ``scale_plan.py``: The plan of a study on a known card: hours, memory and cost from measured throughput, and the
  jobs for SLURM
- ``scheduler.py``: The scheduler: jobs side by side, on GPUs and on CPU cores beside them, until all are done or the
  time is up
- ``stage_outputs.py``: The output files of a study's stages, read back
- ``stages.py``: The stages of a study; each continues where an earlier call stopped
- ``statistics.py``: Means over seeds with intervals, tests of many comparisons, and the effect that a design can see
- ``study_jobs.py``: The jobs of a study and the folders that they write; what is finished stays, so that a second call
  continues
- ``untrained.py``: The untrained model with every strategy of a study, to be measured
"""
