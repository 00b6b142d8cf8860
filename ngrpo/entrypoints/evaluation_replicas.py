"""Replicas of the model, one a device, that answer an evaluation's problems side by side, each in its own process.

An answer depends on its prompt, key, weights and settings alone, so that it does not matter which replica gives it.
"""

import logging
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
from omegaconf import DictConfig

from ngrpo.config.instantiate import build
from ngrpo.distributed.parent_watch import end_with_parent, ending_children
from ngrpo.entrypoints.error_handling import sentence
from ngrpo.entrypoints.evaluation_worker import build_evaluation_worker, start_evaluation_worker
from ngrpo.errors import RunError
from ngrpo.evaluation.answer_sampling import Report, Waiting, answer_all
from ngrpo.rollout.vllm.device import visible_to_children
from ngrpo.types.problems import Prompt
from ngrpo.utils.torch_settings import accelerator_of, set_torch


@dataclass(frozen=True)
class Answered:
    """What a replica says as it goes on.

    Attributes:
        benchmark: whose problems.
        problems: how many more.
    """

    benchmark: str
    problems: int


@dataclass(frozen=True)
class Failed:
    """What a replica says before it ends, if a user can act on it.

    Attributes:
        sentence: why it ends.
    """

    sentence: str


def replica_count(devices: int | str, accelerator: str, problems: int) -> int:
    """Returns the number of replicas: one a device, and none without a problem.

    Args:
        devices: of this machine, or "auto" for every GPU (one on a CPU).
        accelerator: cpu | gpu | auto.
        problems: to be answered.
    """
    if devices == "auto":
        devices = torch.cuda.device_count() if accelerator_of(accelerator) == "gpu" else 1
    return min(int(devices), problems)


def shares(waiting: Waiting, replicas: int) -> Sequence[Waiting]:
    """Returns the prompts of each replica: every ``replicas``-th of all, since neighbours are often alike in length."""
    assigned: list[dict[Path, list[Prompt]]] = [{folder: [] for folder in waiting} for _ in range(replicas)]
    every = [(folder, prompt) for folder, prompts in waiting.items() for prompt in prompts]
    for number, (folder, prompt) in enumerate(every):
        assigned[number % replicas][folder].append(prompt)
    return assigned


def answer_on_replicas(config: DictConfig, waiting: Waiting, replicas: int, report: Report) -> None:
    """Answers the waiting problems and stores the answers, as `answer_all` does with one worker.

    Args:
        config: checked, of ``conf/evaluate.yaml``.
        waiting: what is to be answered.
        replicas: processes.
        report: is told of the progress.

    Raises:
        RunError: a replica failed; the others are ended.
    """
    context = get_context("spawn")
    processes: dict[Connection, BaseProcess] = {}
    on_gpu = accelerator_of(config.accelerator) == "gpu"
    try:
        with ending_children():
            for index, share in enumerate(shares(waiting, replicas)):
                ours, theirs = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(
                    target=_answer, args=(config, share, theirs), name=f"replica {index}"
                )
                with visible_to_children(torch.device("cuda", index) if on_gpu else torch.device("cpu")):
                    process.start()
                processes[ours] = process
                theirs.close()  # so that the end of the replica is the end of what it says
        _follow(dict(processes), report)
    finally:
        for process in processes.values():
            process.kill()
            process.join()


def _follow(running: dict[Connection, BaseProcess], report: Report) -> None:
    """Listens to the replicas until all have answered their share."""
    while running:
        for connection in wait(list(running)):
            assert isinstance(connection, Connection)
            try:
                said = connection.recv()
            except EOFError:
                _check_ended(running.pop(connection))
                continue
            if isinstance(said, Failed):
                raise RunError(f"{running[connection].name} of the evaluation failed: {said.sentence}")
            report(said.benchmark, said.problems)


def _check_ended(process: BaseProcess) -> None:
    process.join()
    status = process.exitcode or 0
    if status:
        how = f"ended with status {status}"
        if status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
            how += ", as the kernel does when memory runs out" if -status == signal.SIGKILL else ""
        raise RunError(f"{process.name} of the evaluation {how}; the same command continues where it was.")


def _answer(config: DictConfig, share: Waiting, connection: Connection) -> None:
    """What a replica does."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the first process ends this one
    logging.basicConfig(level=logging.ERROR, format="%(message)s")  # it has warned already
    try:
        _answer_share(config, share, connection)
    except Exception as error:
        said = sentence(error)
        if said is None:
            raise
        connection.send(Failed(said))


def _answer_share(config: DictConfig, share: Waiting, connection: Connection) -> None:
    set_torch(config.threads, config.matmul_precision)
    source, evaluator = build(config.model), build(config.evaluator)
    worker = build_evaluation_worker(config, source, evaluator)
    start_evaluation_worker(worker, source, config)
    try:
        answer_all(share, evaluator, worker, config.problems_at_once, lambda *said: connection.send(Answered(*said)))
    finally:
        worker.close()
