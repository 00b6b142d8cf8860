"""A notebook, executed in a folder."""

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from places import ROOT


def execute(notebook: Path, folder: Path) -> Any:
    """Runs all cells, and returns the notebook with their outputs; a cell's error is raised."""
    read: Any = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(read, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    # The interpreter that runs the tests, whatever kernels are installed.
    client.create_kernel_manager()
    client.km.kernel_cmd = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]  # type: ignore[union-attr]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return client.execute(env=environment)
