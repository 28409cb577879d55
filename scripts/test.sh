#!/usr/bin/env bash
# `make test`: the unit part first, timed, then everything that needs an engine, an index or a second process.
# UNIT_LIMIT_S makes a unit part that takes more processor time an error (`make check` sets it): wall time says as much
# about the machine as about the tests. More words go to pytest's second run.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/pytest tests/unit --collect-only >/dev/null || true # a fresh environment's bytecode is no test's time
TIMEFORMAT='%R %U %S'
exec 3>&1 4>&2
if ! took=$({ time .venv/bin/pytest tests/unit 1>&3 2>&4; } 2>&1); then
    exit 1
fi
read -r wall user system <<<"$took"
echo "unit part: $wall s, of the processor $user + $system s"
if awk "BEGIN { exit !($user + $system > ${UNIT_LIMIT_S:-600}) }"; then
    echo "the unit part may take $UNIT_LIMIT_S s at most: move what is slow to tests/integration" >&2
    exit 1
fi
exec .venv/bin/pytest tests/conformance tests/integration tests/e2e -m "not live" -n 2 --dist loadfile "$@"
