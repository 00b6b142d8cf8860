"""Faults of several training processes, on GPUs over NCCL or on CPUs: what ends, how soon, and whether it resumes.

    python scripts/check_faults.py --work /tmp/faults --json faults.json
    python scripts/check_faults.py --work /tmp/faults --accelerator cpu --engines torch --json faults.json

The demo model is trained on ``--devices`` cards, in several runs at a time. One process is killed in the middle of an
update, an engine process while it generates, the run is asked to stop, one card has no memory left. Each must end or
recover within ``--limit`` seconds, with no process left and, at the end, no memory in use on any card that was not
before; resumed, it must end with the weights and moments of a run that nobody disturbed. ``repeated`` says whether two
undisturbed runs are equal themselves, without which the rest could not be.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.table import Table
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from ngrpo.checkpoint.folders import STATE, complete_checkpoints
from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.rollout.vllm.engine import VllmEngine
from ngrpo.rollout.worker import RolloutWorker

ROOT = Path(__file__).parents[1]
ITERATIONS, FAULT_AT = 6, 3
DELAY_S = 0.1
"""Between the start of generation and the end of an engine process."""
RUN_S = 400
"""Most seconds of a run."""
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


class Deterministic(Callback):
    """Has PyTorch choose kernels that always round alike, as far as it has them."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Runs before the models are made."""
        torch.use_deterministic_algorithms(True, warn_only=True)


class Fault(Callback):
    """Does one process of a run harm, in the middle of an update or of generation.

    Args:
        worker: of this rank.
        kind: ``kill`` this process, take more ``memory`` than there is, or kill its ``engine`` process.
        rank: that it happens on.
        marker: a file that is made just before.
    """

    def __init__(self, worker: RolloutWorker, kind: str, rank: int, marker: str) -> None:
        self.worker = worker
        self.kind = kind
        self.rank = rank
        self.marker = Path(marker)
        self._now = False

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Notes when it is time."""
        chosen = batch.iteration == FAULT_AT and trainer.global_rank == self.rank
        self._now = chosen and not self.marker.exists()

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Runs while the other processes wait for this one's gradient."""
        if not self._now or self.kind == "engine":
            return
        self._now = False
        self.marker.touch()
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        torch.empty(1 << 46, dtype=torch.uint8, device=pl_module.device)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Kills the engine process a moment later, in the next iteration's generation."""
        if self._now and self.kind == "engine":
            self._now = False
            assert isinstance(self.worker.engine, VllmEngine)
            client: Any = self.worker.engine.llm.llm_engine.engine_core
            pids = [process.pid for process in client.resources.engine_manager.processes]
            threading.Timer(DELAY_S, self._kill, [pids]).start()

    def _kill(self, pids: Sequence[int]) -> None:
        self.marker.touch()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """Returns a process and all below it, itself first."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found, todo = [], [root]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def living(pids: Sequence[int]) -> list[int]:
    """Returns those that still hold anything; one that merely waits to be taken note of does not."""
    left = []
    for pid in pids:
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                left.append(pid)
    return left


@dataclass(frozen=True)
class Case:
    """A fault.

    Attributes:
        name: of it.
        engine: torch or vllm.
        kind: see `Fault`; "stop" sends SIGTERM, None does nothing.
        rank: that it happens on.
        status: that the run must end with.
    """

    name: str
    engine: str
    kind: str | None
    rank: int
    status: int


CASES = (
    Case("undisturbed", "torch", None, 0, 0),
    Case("repeated", "torch", None, 0, 0),
    Case("second process killed", "torch", "kill", 1, 1),
    Case("first process killed", "torch", "kill", 0, -signal.SIGKILL),
    Case("no memory on the second", "torch", "memory", 1, 1),
    Case("no memory on the first", "torch", "memory", 0, 1),
    Case("SIGTERM", "torch", "stop", 0, 128 + signal.SIGTERM),
    Case("undisturbed", "vllm", None, 0, 0),
    Case("repeated", "vllm", None, 0, 0),
    Case("engine killed", "vllm", "engine", 1, 0),
    Case("second process killed", "vllm", "kill", 1, 1),
    Case("first process killed", "vllm", "kill", 0, -signal.SIGKILL),
)


@dataclass
class Outcome:
    """What came of a case; seconds are from the fault to the end of the last process, or to the next iteration's."""

    name: str
    engine: str
    status: int | None = None
    right_status: bool = False
    over_s: float = -1.0
    left: int = -1
    said: str = ""
    resumed: int | None = None
    difference: float | None = None
    state: dict[str, Any] | None = None


def settings(arguments: argparse.Namespace, engine: str) -> list[str]:
    """Returns the settings of every run."""
    made = [
        "exploration=neighbor", "debug=fast", "exploration.rate=0.5", f"trainer.iterations={ITERATIONS}",
        "callbacks.checkpoint.every=1", "callbacks.evaluation=null", "callbacks.export=null", "reward.workers=1",
        "callbacks.run_record=null", "callbacks.pass_at_k_figure=null",
        f"trainer.accelerator={arguments.accelerator}", f"trainer.devices={arguments.devices}",
        "algo.optimizer_steps=2", "allow_targets=[check_faults]",
        "+callbacks.deterministic._target_=check_faults.Deterministic",
    ]  # fmt: skip
    if engine == "vllm":
        made += ["rollout=vllm", "rollout.engine.own_process=true", "rollout.engine.enforce_eager=true"]
        made += ["rollout.engine.gpu_memory_utilization=0.05"]
        # Without a measurement of memory, which other runs on the card would disturb.
        made += ["+rollout.engine.options.kv_cache_memory_bytes=1000000000"] * (arguments.accelerator == "gpu")
    return made


def started(run: Path, overrides: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Starts a run; its output goes into ``<run>.out``."""
    command = [sys.executable, "scripts/train.py", *overrides, f"hydra.run.dir={run}"]
    with Path(f"{run}.out").open("ab") as out:
        return subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, env=os.environ | DETERMINISTIC)


def watched(process: "subprocess.Popen[bytes]") -> Iterator[set[int]]:
    """Yields all processes that the run has had so far, five times a second until the first has ended."""
    every: set[int] = {process.pid}
    deadline = time.monotonic() + RUN_S
    while process.poll() is None and time.monotonic() < deadline:
        every |= set(descendants(process.pid))
        yield every
        time.sleep(0.2)
    yield every


def disturbed(arguments: argparse.Namespace, case: Case) -> Outcome:
    """Runs a case, and resumes what did not end well."""
    run = arguments.work / f"{case.engine}-{case.name.replace(' ', '-')}"
    outcome, marker, overrides = Outcome(case.name, case.engine), Path(f"{run}.fault"), settings(arguments, case.engine)
    harm = [f"+callbacks.fault.{name}={value}" for name, value in (
        ("_target_", "check_faults.Fault"), ("kind", case.kind), ("rank", case.rank), ("marker", marker))]  # fmt: skip
    process = started(run, overrides + (harm if case.kind not in (None, "stop") else []))
    every: set[int] = set()
    for seen in watched(process):
        every |= seen
        if case.kind == "stop" and not marker.exists() and f"iteration {FAULT_AT}/" in logged(run):
            marker.touch()
            process.send_signal(signal.SIGTERM)
        if case.kind == "engine" and outcome.over_s < 0 and f"iteration {FAULT_AT + 2}/" in logged(run):
            outcome.over_s = time.time() - marker.stat().st_mtime
    since = marker.stat().st_mtime if marker.exists() else time.time()
    end = time.time() + arguments.limit
    while living(list(every)) and time.time() < end:
        time.sleep(0.1)
    outcome.left = len(living(list(every)))
    if outcome.over_s < 0:
        outcome.over_s = time.time() - since
    for pid in living(list(every)):  # which this script has started
        os.kill(pid, signal.SIGKILL)
    outcome.status = process.wait()
    outcome.right_status = outcome.status == case.status and (case.kind is None or marker.exists())
    outcome.said = last_line(run)
    if outcome.status != 0:
        outcome.resumed = finish(run, [*overrides, "ckpt=latest"])
    outcome.state = final_state(run)
    return outcome


def finish(run: Path, overrides: Sequence[str]) -> int:
    """Runs to the end; returns the exit status."""
    process = started(run, overrides)
    try:
        return process.wait(RUN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def logged(run: Path) -> str:
    """Returns the run's log so far."""
    log = run / "train.log"
    return log.read_text() if log.exists() else ""


def last_line(run: Path) -> str:
    """Returns what was said last."""
    lines = Path(f"{run}.out").read_text(errors="replace").splitlines()
    return next((line for line in reversed(lines) if line.strip()), "")[:300]


def final_state(run: Path) -> dict[str, Any] | None:
    """Returns weights and moments after the last iteration, None if it was not reached."""
    found = [folder for folder in complete_checkpoints(run) if folder.name == f"iteration-{ITERATIONS}"]
    if not found:
        return None
    state, whole_file = found[0] / STATE, Path(f"{run}.state")
    if state.is_dir():  # of several processes
        dcp_to_torch_save(state, whole_file)
        state = whole_file
    loaded: dict[str, Any] = torch.load(state, weights_only=True, map_location="cpu")
    return {name: part for name, part in loaded.items() if name == "state_dict" or name.startswith("optimizer")}


def tensors(state: Any, place: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the tensors of a nested state by their places."""
    if isinstance(state, torch.Tensor):
        yield place, state
    elif isinstance(state, dict | list | tuple):
        for key, value in state.items() if isinstance(state, dict) else enumerate(state):
            yield from tensors(value, f"{place}.{key}")


def difference(one: dict[str, Any] | None, two: dict[str, Any] | None) -> float | None:
    """Returns the largest difference of two states; 0 if they are equal bit for bit, None if one is missing."""
    if one is None or two is None:
        return None
    first, second = dict(tensors(one)), dict(tensors(two))
    assert first.keys() == second.keys()
    pairs = [(first[place].double(), second[place].double()) for place in first]
    return max((float((a - b).abs().max()) for a, b in pairs if a.numel()), default=0.0)


def used() -> list[int]:
    """Returns the bytes in use on each card."""
    infos = [torch.cuda.mem_get_info(number) for number in range(torch.cuda.device_count())]
    return [total - free for free, total in infos]


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs; must be new")
    parser.add_argument("--accelerator", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--devices", type=whole(2), default=2)
    parser.add_argument("--engines", nargs="+", choices=["torch", "vllm"], default=["torch", "vllm"])
    parser.add_argument("--cases", nargs="*", help="names of some of them; undisturbed is always run")
    parser.add_argument("--limit", type=whole(1), default=60, help="seconds in which all must be over")
    parser.add_argument("--at-a-time", type=whole(1), default=6)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    """Runs the cases and reports; status 1 if one of them is not as it must be."""
    arguments = parse()
    arguments.work = arguments.work.resolve()
    arguments.work.mkdir(parents=True)
    before = used()
    chosen = [case for case in CASES if case.engine in arguments.engines]
    if arguments.cases:
        chosen = [case for case in chosen if case.name in ("undisturbed", *arguments.cases)]
    with ThreadPoolExecutor(arguments.at_a_time) as pool:
        outcomes = list(pool.map(lambda case: disturbed(arguments, case), chosen))
    for outcome in outcomes:
        same = next(o for o in outcomes if o.engine == outcome.engine and o.name == "undisturbed")
        outcome.difference = difference(same.state, outcome.state)
    time.sleep(2)
    left = [max(0, now - then) for now, then in zip(used(), before, strict=True)]
    right = report(arguments, outcomes, left)
    raise SystemExit(0 if right else 1)


def report(arguments: argparse.Namespace, outcomes: list[Outcome], left: list[int]) -> bool:
    """Prints and writes what was found; returns whether all is as it must be."""
    kind = f"{torch.cuda.get_device_name()}, NCCL" if arguments.accelerator == "gpu" else "CPU, gloo"
    table = Table("case", "engine", "status", "over s", "left", "resumed", "difference", "said", title=kind)
    rows = []
    for outcome in outcomes:
        row = {name: value for name, value in asdict(outcome).items() if name != "state"}
        row["passed"] = passed(outcome, arguments.limit)
        rows.append(row)
        table.add_row(outcome.name, outcome.engine, f"{outcome.status}{'' if outcome.right_status else ' (wrong)'}",
                      f"{outcome.over_s:.1f}", str(outcome.left), str(outcome.resumed), str(outcome.difference),
                      outcome.said[:60])  # fmt: skip
    Console(width=180).print(table)
    print(f"bytes in use on the cards beyond those before: {left}")
    right = all(row["passed"] for row in rows) and max(left, default=0) < 64 << 20
    if arguments.json:
        made = {"card": kind, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"), "passed": right}
        arguments.json.write_text(json.dumps(made | {"bytes_left": left, "cases": rows}, indent=2) + "\n")
    return right


def passed(outcome: Outcome, limit: float) -> bool:
    """Says whether a case ended as it must, in time, with nothing left, and resumed to the same state."""
    over = outcome.left == 0 and outcome.over_s <= limit
    return outcome.right_status and over and outcome.resumed in (None, 0) and outcome.difference == 0.0


if __name__ == "__main__":
    run_main(main)
