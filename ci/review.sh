#!/usr/bin/env bash
# Review the change. Everything comes by environment variables and stays a value: nothing is evaluated.
set -euo pipefail
: "${HARNESS_BASE:?the commit that the change is made to}" "${HARNESS_HEAD:?the change}"
: "${GITHUB_WORKSPACE:?}" "${GITHUB_OUTPUT:?}" "${RUNNER_TEMP:?}"
folder="$RUNNER_TEMP/agent-harness"
mkdir -p "$folder"
echo "folder=$folder" >>"$GITHUB_OUTPUT"

without="${HARNESS_WITHOUT_KEY:-fail}"
if [ -z "${HARNESS_KEY:-}" ] && [ "$without" != review ]; then
    echo "::notice title=Not reviewed::No key for the model was given (pull requests from forks get no secrets), so nobody looked at this change. A maintainer can review it from a branch of this repository."
    if [ "$without" = skip ]; then
        printf 'verdict=skipped\nexit=0\n' >>"$GITHUB_OUTPUT"
        exit 0
    fi
    printf 'verdict=inconclusive\nexit=4\n' >>"$GITHUB_OUTPUT"
    exit 4
fi

key_env="${HARNESS_KEY_ENV:-AGENT_HARNESS_API_KEY}"
case "$key_env" in
    *[!A-Za-z0-9_]* | [0-9]* | PATH | LD_* | PYTHON* | BASH* | GIT_*)
        echo "::error title=Not reviewed::api-key-env is not the name of a variable for a key" && exit 2 ;;
esac
[ -z "${HARNESS_KEY:-}" ] || export "$key_env=$HARNESS_KEY"

words=(review --base "$HARNESS_BASE" --head "$HARNESS_HEAD" --passes "${HARNESS_PASSES:-1}"
    --format "github=$folder/annotations.txt" --format "sarif=$folder/review.sarif" --format "json=$folder/review.json"
    --format "markdown=$folder/review.md" --format "junit=$folder/review.xml" --set "state.dir=$folder/state")
[ -z "${HARNESS_FAIL_ON:-}" ] || words+=(--fail-on "$HARNESS_FAIL_ON")
if [ -n "${HARNESS_MODEL:-}" ]; then
    words+=(--set "routes.action.model=$HARNESS_MODEL" --set 'roles.reviewer.routes=["action"]')
    [ -z "${HARNESS_KEY:-}" ] || words+=(--set "routes.action.api_key_env=$key_env")
    [ -z "${HARNESS_BASE_URL:-}" ] || words+=(--set "routes.action.base_url=$HARNESS_BASE_URL")
    [ -z "${HARNESS_PRICE_INPUT:-}" ] || words+=(--set "routes.action.price.input=$HARNESS_PRICE_INPUT")
    [ -z "${HARNESS_PRICE_OUTPUT:-}" ] || words+=(--set "routes.action.price.output=$HARNESS_PRICE_OUTPUT")
fi
while IFS= read -r setting; do
    [ -z "$setting" ] || words+=(--set "$setting")
done <<<"${HARNESS_SETTINGS:-}"
if [ -n "${HARNESS_CLAIMS:-}" ]; then
    printf '%s\n' "$HARNESS_CLAIMS" >"$folder/claims.md"
    words+=(--claims "$folder/claims.md")
fi

# The runner takes commands from a step's output. While a model's words pass by, only one word ends the pause.
word="$("$folder/venv/bin/python" -I -c 'import secrets; print(secrets.token_hex(16))')"
cd "$GITHUB_WORKSPACE"
export AGENT_HARNESS_TRUST=1 # the base is the owner's, and so is what this job may use
echo "::stop-commands::$word"
code=0
"$folder/venv/bin/agent-harness" "${words[@]}" || code=$?
echo
echo "::$word::"
[ ! -f "$folder/annotations.txt" ] || cat "$folder/annotations.txt"
[ -f "$folder/review.json" ] || echo "::error title=Not reviewed::the review ended with exit code $code before it began"
exit "$code"
