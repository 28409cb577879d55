#!/usr/bin/env bash
# `make check`: format, lint, types, import contracts, house numbers, then all tests with a limit on the unit part.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
PS4=''
set -x
ruff format --check .
ruff check .
mypy
mypy scripts/setup.py
mypy scripts/lock.py
pyright
lint-imports --no-cache
pytest tests/integration/test_house.py
UNIT_LIMIT=20 scripts/test.sh
