"""A process that logs, and kills itself; and what the services then hold."""

import json
import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forked import HELPERS
from places import ROOT

SCRIPT = """
import importlib, json, os, signal, sys
from killed_logger import media
given = json.loads(sys.argv[1])
kind = getattr(importlib.import_module(f"ngrpo.loggers.{given['service']}"), given["service"].capitalize())
logger = kind(given["folder"], "a-run", given["done"], **given["settings"])
logger.log_hyperparams({"seed": 0, "model": {"path": "demo", "none": None}, "list": [1, {"a.b": 2}]})
if given["done"]:  # the evaluation callback logs again what the checkpoint reached
    logger.log_metrics({"eval/mean@1": float(given["done"])}, given["done"])
for step in range(given["done"], given["last"]):
    logger.log_media(media(), step)
    logger.log_metrics({"eval/mean@1": step + 1.0}, step + 1)  # before the iteration itself, as the evaluation does
    logger.log_metrics({"train/reward": float(step), "aime.24/x": 0.5, "policy/nan": float("nan"), "epoch": 0}, step)
    logger.save()
if given["killed"]:
    os.kill(os.getpid(), signal.SIGKILL)
logger.finalize("success")
"""


def media() -> dict[str, Any]:
    """Returns one of each, but a page."""
    from io import BytesIO

    import torch
    from PIL import Image as Picture

    from ngrpo.loggers.media import Histogram, Image, Table, Text

    file = BytesIO()
    Picture.new("RGB", (4, 4)).save(file, "PNG")
    table = Table(("question", "reward"), (("1+1", 1.0),), "| question | reward |")
    return {
        "policy/ratios": Histogram.of(torch.tensor([0.0, 1.0, 1.0])),
        "eval/pass_at_k": Image.of(file.getvalue()),
        "rollouts": table,
        "config": Text("seed: 0"),
    }


def log(service: str, folder: Path, done: int, last: int, killed: bool, **settings: Any) -> None:
    """Logs steps ``done`` to ``last - 1``, each with the evaluation after it."""
    given = {"service": service, "folder": str(folder), "done": done, "last": last, "killed": killed}
    command = [sys.executable, "-c", SCRIPT, json.dumps(given | {"settings": settings})]
    path = {"PYTHONPATH": f"{ROOT}:{HELPERS}", "PATH": "/usr/bin:/bin", "WANDB_MODE": "offline", "HOME": str(folder)}
    path |= {"TRACKIO_DIR": str(folder / "trackio"), "OMP_NUM_THREADS": "1"}
    done_process = subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True, timeout=300)
    assert done_process.returncode == (-9 if killed else 0), done_process.stderr[-3000:]


Points = dict[str, list[tuple[int, Any]]]
"""(step, value) by tag, in the order in which they are stored."""


def in_wandb(folder: Path) -> Points:
    """Reads the offline runs, all of one id."""
    from wandb.proto import wandb_internal_pb2

    found: Points = defaultdict(list)
    for file in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        for stored in _records(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(stored)
            if record.WhichOneof("record_type") == "history":
                row: dict[str, Any] = {}
                for item in record.history.item:
                    tag, *inner = item.nested_key or [item.key]
                    value = json.loads(item.value_json)
                    row[tag] = row.get(tag, {}) | {inner[0]: value} if inner else value
                for tag, value in row.items():
                    found[tag].append((row["iteration"], value))
    return found


def _records(data: bytes) -> Iterator[bytes]:
    """Yields the records of a file in LevelDB's log format, blocks of 32 KiB."""
    place, record = 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


def in_mlflow(folder: Path) -> Points:
    """Reads the data base; there is one run."""
    import mlflow

    uri = f"sqlite:///{folder}/mlflow.db"
    client = mlflow.MlflowClient(uri, registry_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("ngrpo").experiment_id])
    names = run.data.metrics
    return {n: [(p.step, p.value) for p in client.get_metric_history(run.info.run_id, n)] for n in names}


def in_trackio(folder: Path) -> Points:
    """Reads the data base; there is one run."""
    import sqlite3

    found: Points = defaultdict(list)
    with sqlite3.connect(folder / "trackio" / "ngrpo.db") as base:
        runs = base.execute("select distinct run_name from metrics").fetchall()
        assert len(runs) == 1
        for step, metrics in base.execute("select step, metrics from metrics order by id"):
            for tag, value in json.loads(metrics).items():
                found[tag].append((step, value))
    return found
