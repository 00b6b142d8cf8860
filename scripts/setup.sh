#!/usr/bin/env bash
# Makes a virtual environment (VENV, default .venv) with the package and its development tools, once.
# Without a GPU the CPU build of torch is taken, which saves gigabytes.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${VENV:-.venv}"
if [ ! -x "$venv/bin/python" ]; then
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --upgrade pip
fi
if ! "$venv/bin/python" -c "import ngrpo, torch" 2>/dev/null; then
    echo "Installing into $venv: PyTorch, transformers, Lightning, this package and its development tools, some 130 packages."
    if command -v nvidia-smi >/dev/null; then
        echo "With PyTorch's CUDA libraries they take several gigabytes."
    else
        echo "With the CPU build of PyTorch they take some 2 GB on disk."
    fi
fi
if ! "$venv/bin/python" -c "import torch" 2>/dev/null && ! command -v nvidia-smi >/dev/null; then
    "$venv/bin/python" -m pip install --quiet torch==2.13.0
fi
"$venv/bin/python" -m pip install --quiet --editable ".[dev]"
