"""Does exploration help? Many small runs, compared with intervals over seeds; see ``scripts/study.py``.

- ``definition.py``: What a study consists of (``conf/study.yaml``)
- ``difficulty.py``: Which difficulty suits a model, measured before anything is trained
- ``effect.py``: What share of mixed steps changes what follows
- ``figure.py``: A study's results as one picture
- ``fingerprint.py``: What a study was begun with: its finished runs count only for the same settings
- ``finished.py``: Reads what the finished stages of a study left
- ``measure.py``: From a run's stored answers and record to the figures that are kept
- ``mix_until.py``: A strategy that stops at a chosen position of each rollout
- ``probing.py``: Speed of generation and effect of mixing on the untrained model, as far as the time goes and no step
  twice
- ``rarefaction.py``: How many kinds there are among samples, compared at one number of samples
- ``results.py``: What is kept of a study's runs, and the file that holds it
- ``scheduler.py``: Runs jobs side by side, each on a GPU of its own or sharing one, until they are done or the time
  is up
- ``stages.py``: The folders of a study and what each of its jobs does; everything finished stays, so a second call
  goes on
- ``statistics.py``: Means over seeds with intervals
- ``summary.py``: From runs to what is reported of each arm: means over seeds, and differences to the reference seed
  by seed
- ``table.py``: A study's results as markdown
- ``untrained.py``: The untrained model with every strategy of a study, to be measured
"""
