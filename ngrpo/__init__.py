"""N-GRPO: reinforcement-learning post-training with exploration at the embedding level.

- ``entrypoints/``: The code behind the scripts and the command line
- ``config/``: From conf/ to checked objects
- ``callbacks/``: Lightning callbacks, one class a file; imported as ``ngrpo.callbacks``
- ``rollout/``: Rollouts: engines that generate, and the worker that makes scored rollouts of prompts
- ``remote/``: The client of rollout servers: exploration without this project's engines, on other machines
- ``serving/``: The server of rollouts: OpenAI's interface with exploration, and one of this project with records and
  weights
- ``exploration/``: Exploration strategies: how the next input embedding of a rollout is made
- ``rewards/``: Rewards: the verifier of answers, further terms, and processes that isolate custom ones
- ``training/``: One optimiser step: from scored rollouts to updated weights
- ``planning/``: Plans of a run's memory and time, before anything is loaded
- ``algo/``: Algorithms as compositions of pure functions
- ``modeling/``: Models: loading, packing, attention, replay, sharding
- ``replay/``: Replay for any trainer: a model of transformers sees the inputs that rollouts saw; imports torch alone
- ``plugins/``: Exploration in other programs that train: each plug-in is one module to import, which imports that
  program
- ``data/``: Prompts: sources, chat templates, the data module
- ``evaluation/``: Evaluation: Mean@k, Pass@k, reports
- ``checkpoint/``: Checkpoints: complete folders on disk, what they belong to, and the exported policy
- ``loggers/``: Lightning's loggers for runs that are resumed
- ``report/``: A run's record on disk, and the page made from it
- ``distributed/``: Ranks, collectives, and the processes of a run
- ``types/``: The data that is passed everywhere: problems and prompts, requests and rollouts, their records and
  scores
- ``utils/``: Small helpers that know nothing of reinforcement learning
- ``demo_model/``: The recipe of the shipped demo model, whose files are in ``ngrpo/modeling/demo``
- ``model_check/``: The comparison at start-up: trainer and engine against the model's own logits
- ``engine_check/``: The comparison of an engine with PyTorch before it is used: decisions, records and log-probs at
  every position
- ``study/``: A study: many small runs with different methods, compared with intervals over seeds; see
  ``scripts/study.py``
- ``compat/``: Old names of what has moved since version 0.1, kept for one version
- ``__main__.py``: The console command, as ``python -m ngrpo``
- ``errors.py``: The errors that a user can act on; the scripts print the message, not a traceback

The functions of the Python interface (`ngrpo.entrypoints.python_api`) are imported when they are asked for: this module
stays free of heavy imports, and the answer-checking worker processes import it.
"""

from typing import TYPE_CHECKING

from ngrpo.compat import import_hook
from ngrpo.compat.attributes import serve_old_names

if TYPE_CHECKING:
    from ngrpo.entrypoints.python_api.evaluation import evaluate
    from ngrpo.entrypoints.python_api.sampling import sample
    from ngrpo.entrypoints.python_api.scoring import score
    from ngrpo.entrypoints.python_api.training import train
    from ngrpo.entrypoints.python_api.verification import verify
    from ngrpo.remote.explorer import RemoteExplorer

__all__ = ["RemoteExplorer", "evaluate", "sample", "score", "train", "verify"]
__version__ = "0.1.0"

_API = "ngrpo.entrypoints.python_api"

import_hook.install()
serve_old_names(
    __name__,
    {
        "RemoteExplorer": "ngrpo.remote.explorer",
        "evaluate": f"{_API}.evaluation",
        "sample": f"{_API}.sampling",
        "score": f"{_API}.scoring",
        "train": f"{_API}.training",
        "verify": f"{_API}.verification",
    },
    importing="ngrpo.utils.optional_packages:naming_extras",
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
