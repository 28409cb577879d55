#!/usr/bin/env bash
# Get the sandbox image that the base's configuration names. The change's own files do not count: configuration is
# read from the base commit, and the command is run in a folder that holds nothing else.
set -euo pipefail
: "${HARNESS_BASE:?the commit that the change is made to}" "${GITHUB_WORKSPACE:?}" "${RUNNER_TEMP:?}"
folder="$RUNNER_TEMP/agent-harness"
mkdir -p "$folder/base"
for name in harness.toml pyproject.toml; do
    git -c safe.directory='*' -C "$GITHUB_WORKSPACE" cat-file blob "$HARNESS_BASE:$name" >"$folder/base/$name" 2>/dev/null ||
        rm -f "$folder/base/$name"
done
cd "$folder/base"
export AGENT_HARNESS_TRUST=1 # the base is the owner's, and so is what this job may use
# Its exit code says whether all of a run's needs are met; the keys are not here. The review itself fails closed.
"$folder/venv/bin/agent-harness" doctor --fix --set "project.source=$GITHUB_WORKSPACE" \
    --set "project.base=$HARNESS_BASE" --set "state.dir=$folder/state" || true
