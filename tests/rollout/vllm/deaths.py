"""A script in which the engine's process is killed at several moments, or a step fails, and what is rebuilt compared.

    python deaths.py generation transfer ...
    python deaths.py --in-process forward

A script of its own, since vLLM starts processes that import the main module. Prints a JSON report: for each moment
whether the rollouts are those of an engine that lived, bit for bit; processes, shared memory and sockets that are left.
"""

import argparse
import json
import multiprocessing
import os
import signal
import tempfile
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from process_tree import holding, shared_memory, tree
from vllm_checks import RunsOut, random_requests, say_where_it_hangs, start_engine

from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.vllm.engine import VllmEngine
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.types.problems import Problem, Prompt
from ngrpo.types.rollouts import Request, Rollout
from ngrpo.types.scores import Score, Verdict

KILLED = ("generation", "transfer", "update", "asleep", "tables", "evaluation")
MARKER = Path(tempfile.gettempdir()) / "no_memory"
STRATEGY = RunsOut(rate=0.4, k=3, end_token=None, marker=str(MARKER))


def kill() -> None:
    """Kills the engine's process, and waits for its end."""
    children = multiprocessing.active_children()
    assert children
    for child in children:
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()


class Policy:
    """Weights that are others in each round."""

    def __init__(self, source: ModelSource) -> None:
        self.named = [(name, tensor.detach()) for name, tensor in source.load().named_parameters()]
        self.scale = 1.0
        self.on_half: Callable[[], None] = lambda: None

    def named_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        for number, (name, tensor) in enumerate(self.named):
            if number == len(self.named) // 2:
                on_half, self.on_half = self.on_half, lambda: None
                on_half()
            yield name, tensor * self.scale

    def learned_exploration(self) -> dict[str, torch.Tensor]:
        return {}


class Rounds:
    """A worker that takes weights and makes rollouts, round after round."""

    def __init__(self, own_process: bool) -> None:
        source = ModelSource()
        self.engine: VllmEngine = start_engine(source, STRATEGY, own_process=own_process, dtype="float32")
        self.policy = Policy(source)
        self.prompts = [Prompt(Problem(n, "", ""), r.prompt_ids) for n, r in enumerate(random_requests(4, 20, 60))]
        self.worker = RolloutWorker(
            self.engine, source.tokenizer(), nothing, STRATEGY, RolloutSettings(4, 40, 0.8), (0,), seed=0
        )
        self.worker.weights = self.policy
        self.held: set[str] = set()
        self.lost: Callable[[], Any] = lambda: None

    def made(self, moment: str | None) -> list[Any]:
        """Makes a round, in which the engine is killed at a moment."""
        self.policy.scale = 1.0
        self.worker.transfer(refresh=True)
        self.policy.scale = 1.1
        self._strike("update", moment)
        self.worker.sleep()
        self._strike("asleep", moment)
        if moment == "transfer":
            self.policy.on_half = kill
        if moment == "tables":
            self._kill_before("embedding")
        self.worker.transfer(refresh=True)
        if moment == "generation":
            self.worker.observer = Killing()
        if moment == "forward":
            self.fail_two_callers()
        rollouts = self.worker.recovered(lambda: self.worker.roll_out(self.prompts, 3)).rollouts
        if moment == "evaluation":
            self._kill_before("generate")
        evaluated = self.worker.evaluate(self.prompts, 2, STRATEGY, 0.7)
        assert evaluated is not None
        for pid in tree(os.getpid()):
            self.held |= shared_memory(pid)
        self.worker.observer = None
        return [content(rollout) for rollout in [*rollouts, *evaluated.rollouts]]

    def fail_two_callers(self) -> None:
        """Both get what one of them ran into, and nothing of the engine is kept that a rebuilt one needs room for."""
        self.lost = weakref.ref(self.engine.llm.llm_engine)
        MARKER.touch()
        requests = [Request(prompt.ids, number) for number, prompt in enumerate(self.prompts)]
        with ThreadPoolExecutor(2) as pool:
            calls = [
                pool.submit(self.engine.generate, requests, self.worker.sampling, self.worker.bound) for _ in range(2)
            ]
            assert all(isinstance(call.exception(60), Exception) for call in calls)

    def _kill_before(self, method: str) -> None:
        def killed(*arguments: Any) -> Any:
            delattr(self.engine, method)
            kill()
            return getattr(self.engine, method)(*arguments)

        setattr(self.engine, method, killed)

    @staticmethod
    def _strike(now: str, moment: str | None) -> None:
        if now == moment:
            kill()


class Killing:
    """Kills when the first rollout has finished."""

    struck = False

    def generating(self, total: int) -> Callable[[int, int], None]:
        return self.report

    def report(self, finished: int, tokens: int) -> None:
        if not self.struck:
            self.struck = True
            kill()

    def scoring(self, total: int) -> None: ...


def command(pid: int) -> str:
    held = holding(pid)
    return "resource_tracker" if held is None else held.command


def nothing(responses: list[str], references: list[str]) -> list[Score]:
    return [Score(0.0, False, "", Verdict.WRONG) for _ in responses]


def content(rollout: Rollout) -> tuple[Any, ...]:
    channels = [None if channel is None else channel.tolist() for channel in rollout.mixture.record]
    parts = (rollout.response_ids, rollout.log_probs, rollout.mixture.positions)
    return (*(part.tolist() for part in parts), channels)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("moments", nargs="*", default=(*KILLED, "forward"))
    parser.add_argument("--in-process", action="store_true")
    arguments = parser.parse_args()
    say_where_it_hangs()
    rounds = Rounds(own_process=not arguments.in_process)
    expected = rounds.made(None)
    assert rounds.made(None) == expected  # else nothing is shown by what follows
    same = {moment: rounds.made(moment) == expected for moment in arguments.moments}
    if "forward" in arguments.moments:
        assert rounds.lost() is None
    rounds.worker.close()
    left = {
        "children": len(multiprocessing.active_children()),
        "processes": [name for pid in tree(os.getpid())[1:] if "resource_tracker" not in (name := command(pid))],
        "shared_memory": sorted(name for name in rounds.held if (Path("/dev/shm") / name).exists()),
        "sockets": sorted(str(path) for path in Path(tempfile.gettempdir()).rglob("*") if path.is_socket()),
    }
    print(json.dumps({"same": same, "left": left}))


if __name__ == "__main__":
    main()
