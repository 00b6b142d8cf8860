#!/usr/bin/env bash
# Sets up if need be and trains the embedded demo; further Hydra overrides may follow.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh
exec "${VENV:-.venv}/bin/python" scripts/train.py exploration=neighbor algo=gspo "$@"
