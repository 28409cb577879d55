#!/usr/bin/env bash
# `make test`: the unit part first, timed, then everything that needs an engine, an index or a second process.
# The unit part's processor time is told as a multiple of a fixed piece of work done right before it: seconds say as much
# about the machine as about the tests. The piece took most of a second where the house number of 10 s was set. UNIT_LIMIT
# (`make check` sets it) is the multiple that is an error: twice the house number, for both figures swing on a busy
# machine. Only user time counts: the system's is other people's disk. More words go to pytest's second run.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/pytest tests/unit --collect-only >/dev/null || true # a fresh environment's bytecode is no test's time
TIMEFORMAT='%R %U %S'
exec 3>&1 4>&2
piece='import argparse, inspect; text = inspect.getsource(argparse); [compile(text, "", "exec") for _ in range(80)]'
read -r _ one _ <<<"$({ time .venv/bin/python -c "$piece" 2>&4; } 2>&1)"
if ! took=$({ time .venv/bin/pytest tests/unit 1>&3 2>&4; } 2>&1); then
    exit 1
fi
read -r wall user system <<<"$took"
times=$(awk "BEGIN { printf \"%.1f\", $user / $one }")
echo "unit part: $wall s, of the processor $user + $system s: $times times the piece of work (10 is the house number)"
if awk "BEGIN { exit !($times > ${UNIT_LIMIT:-600}) }"; then
    echo "the unit part may take $UNIT_LIMIT times that: move what is slow to tests/integration" >&2
    exit 1
fi
exec .venv/bin/pytest tests/conformance tests/integration tests/e2e -m "not live" -n 2 --dist loadfile "$@"
