#!/usr/bin/env bash
# Put agent-harness and what it needs, by hash, into a virtual environment of its own. Python is started so that it
# imports nothing from the current folder, which holds the change.
set -euo pipefail
: "${HARNESS_SOURCE:?the folder of agent-harness}" "${RUNNER_TEMP:?a folder for this job alone}"
cd /
venv="$RUNNER_TEMP/agent-harness/venv"
[ -x "$venv/bin/agent-harness" ] && exit 0
"${HARNESS_PYTHON:-python3}" -I -m venv "$venv"
pip=("$venv/bin/python" -I -m pip --no-input --disable-pip-version-check install -q --no-deps)
"${pip[@]}" --require-hashes -r "$HARNESS_SOURCE/requirements.txt"
"${pip[@]}" --no-index --no-build-isolation "$HARNESS_SOURCE"
"$venv/bin/agent-harness" version
