"""The Python interface: what ``ngrpo.train``, ``ngrpo.sample`` and the other functions of ``import ngrpo`` do.

Settings are those of conf/, as words of the command line (``"exploration.rate=0.2"``), as keywords
(``exploration="neighbor"``) or as mappings (``exploration={"name": "neighbor", "rate": 0.2}``). The functions print
nothing but warnings unless ``verbose=True``, leave the process's settings as they were, and take turns with each other.

- ``arguments.py``: Arguments that the functions share, as they are used, or refused in a sentence
- ``evaluation.py``: ``ngrpo.evaluate``: figures of a model on benchmarks
- ``model_argument.py``: The model that a function is given: a name, a folder, or one in memory
- ``sampling.py``: ``ngrpo.sample``: responses to prompts
- ``scoring.py``: ``ngrpo.score``: the log-probs and entropies of rollouts under a model
- ``session.py``: The surroundings of a call: quiet, alone, and leaving the process's settings as they were
- ``summary.py``: The summary of a training run, read from its folder
- ``training.py``: ``ngrpo.train``: a training run in this process
- ``verification.py``: ``ngrpo.verify``: whether an answer is right
"""

import warnings

# tqdm, which other libraries import, asks every notebook for widgets; nothing here draws with it.
warnings.filterwarnings("ignore", message="IProgress not found")
