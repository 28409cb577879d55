#!/bin/sh
# `make test`: the unit part first, timed, then everything that needs an engine, an index or a second process.
# UNIT_LIMIT_S makes a slower unit part an error (`make check` sets it). More words go to pytest's second run.
set -eu
cd "$(dirname "$0")/.."
began=$(date +%s%N)
.venv/bin/pytest tests/unit
took=$((($(date +%s%N) - began) / 1000000))
printf 'unit part: %d.%03d s\n' $((took / 1000)) $((took % 1000))
if [ "$took" -gt "$((${UNIT_LIMIT_S:-600} * 1000))" ]; then
    echo "the unit part may take $UNIT_LIMIT_S s at most: move what is slow to tests/integration" >&2
    exit 1
fi
exec .venv/bin/pytest tests/conformance tests/integration tests/e2e -m "not live" -n 2 --dist loadfile "$@"
