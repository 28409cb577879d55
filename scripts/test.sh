#!/usr/bin/env bash
# `make test`: the unit part first, timed, then everything that needs an engine, an index or a second process.
# UNIT_LIMIT (`make check` sets it) makes a unit part an error that takes so many times the processor time of a fixed
# piece of work, done right before it: seconds say as much about the machine as about the tests. The piece took one
# second where the house number of 10 s was set. More words go to pytest's second run.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/pytest tests/unit --collect-only >/dev/null || true # a fresh environment's bytecode is no test's time
TIMEFORMAT='%R %U %S'
exec 3>&1 4>&2
piece='import argparse, inspect; text = inspect.getsource(argparse); [compile(text, "", "exec") for _ in range(80)]'
read -r _ user system <<<"$({ time .venv/bin/python -c "$piece" 2>&4; } 2>&1)"
one=$(awk "BEGIN { print $user + $system }")
if ! took=$({ time .venv/bin/pytest tests/unit 1>&3 2>&4; } 2>&1); then
    exit 1
fi
read -r wall user system <<<"$took"
echo "unit part: $wall s, of the processor $user + $system s ($one s for the piece of work to compare with)"
if awk "BEGIN { exit !($user + $system > ${UNIT_LIMIT:-600} * $one) }"; then
    echo "the unit part may take $UNIT_LIMIT times that: move what is slow to tests/integration" >&2
    exit 1
fi
exec .venv/bin/pytest tests/conformance tests/integration tests/e2e -m "not live" -n 2 --dist loadfile "$@"
