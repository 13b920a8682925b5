#!/usr/bin/env bash
# Sets up .venv and runs all checks and tests: bash tests/run.sh [--slow] [flags of pytest]
#   bash tests/run.sh                  what must pass before anything is merged
#   bash tests/run.sh -k checkpoints   the tests with that in their name
#   bash tests/run.sh --slow           only the tests that take minutes
#   bash tests/run.sh --slow --part 2/3    every third of them, from the second on
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../launch/environment.sh"
answer_help "$@"
if [[ -z "${PYTHON:-}" ]]; then
  bash "$ROOT/launch/setup.sh" --dev
fi
use_python
cd "$ROOT"

slow=() seconds=600
if [[ "${1:-}" == --slow ]]; then
  slow=(-m slow) seconds=3600
  shift
fi
# In .venv every package is there, so that a skip which is not in tests/allowed_skips.py fails; the
# proof of flax_model.msgpack needs older packages beside it.
if [[ "$PYTHON" == "$VENV/bin/python" ]]; then
  export STRICT_SKIPS=1
  bash tests/optional_env.sh flax
fi
"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
# Every worker, and the hundreds of processes that tests start, would compile our modules again.
unset PYTHONDONTWRITEBYTECODE
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
"$PYTHON" -m mypy > "$work/mypy" 2>&1 &
mypy=$!
# A process more than there are cores, since many tests wait for processes that they started; at
# most five: each imports jax and TensorFlow and has 2 GB in the end.
cores="$(getconf _NPROCESSORS_ONLN)"
status=0
"$PYTHON" -m pytest --numprocesses $((cores < 4 ? cores + 1 : 5)) --dist worksteal --timeout "$seconds" \
  ${slow[@]+"${slow[@]}"} "$@" || status=$?
if ! wait "$mypy"; then
  status=1
fi
cat "$work/mypy"
exit "$status"
