#!/usr/bin/env bash
# Installs a wheel (first argument) as a user would, into a fresh virtual environment, and trains a project of `ngrpo init` in an
# empty folder that has a callbacks.py of its own, with TensorBoard and Weights & Biases (offline) at once.
set -euo pipefail
wheel="$(realpath "$1")"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3}" -m venv "$scratch/venv"
pip=("$scratch/venv/bin/python" -m pip install --quiet)
"${pip[@]}" --upgrade pip
if ! command -v nvidia-smi >/dev/null; then
    "${pip[@]}" torch==2.13.0 # the CPU build
fi
"${pip[@]}" "${wheel}[train,wandb]"
mkdir "$scratch/here"
cd "$scratch/here"
echo "raise RuntimeError('nobody asked for this file')" >callbacks.py
export WANDB_MODE=offline OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
unset PYTHONPATH
"$scratch/venv/bin/ngrpo" init mine
"$scratch/venv/bin/ngrpo" train --config-dir mine experiment=mine trainer.iterations=5 'logger=[tensorboard,wandb]'
run=(outputs/*/*)
grep --quiet blend_top_two "${run[0]}/report.html"
find "${run[0]}" -name "events.out.tfevents.*" | grep --quiet .
find "${run[0]}" -name "run-*.wandb" | grep --quiet .
echo "the wheel trains a user's project, logs to TensorBoard and wandb, and reports its strategy"
