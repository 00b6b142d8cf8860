#!/usr/bin/env bash
# Sets up if need be, then linters, types and tests; further pytest arguments may follow.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh
bin="${VENV:-.venv}/bin"
"$bin/ruff" check .
"$bin/ruff" format --check .
"$bin/mypy"
exec "$bin/python" -m pytest "$@"
