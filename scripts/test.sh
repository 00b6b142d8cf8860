#!/usr/bin/env bash
# Sets up if need be, then linters, types and tests; further pytest arguments may follow.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh
bin="${VENV:-.venv}/bin"
"$bin/ruff" check .
"$bin/ruff" format --check .
"$bin/mypy"
# Two processes, one thread each; a file's tests stay together, since they share what they set up.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "$bin/python" -m pytest -n 2 --dist loadfile "$@"
