"""A script that runs an engine in its process, and then one in a process of its own.

A script of its own, since vLLM starts processes that import the main module. Fails unless both make the same rollouts.
"""

import multiprocessing

from vllm_checks import MIXING, UNSTOPPED, assert_same_rollouts, random_requests, start_engine

from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource
from ngrpo.types.rollouts import Rollout


def main() -> None:
    in_process, own_process = made(own_process=False), made(own_process=True)
    assert_same_rollouts(own_process, in_process)


def made(own_process: bool) -> list[Rollout]:
    """Rollouts of an engine that is closed then, and gone with its folder of sockets."""
    source = ModelSource()
    engine = start_engine(source, own_process=own_process, dtype="float32")
    assert bool(multiprocessing.active_children()) is own_process
    bound = bind(MIXING, engine.embedding(), Vocabulary.of(source.tokenizer()))
    rollouts = engine.generate(random_requests(4, 20, 60, samples=2), UNSTOPPED, bound)
    engine.close()
    return rollouts


if __name__ == "__main__":
    main()
