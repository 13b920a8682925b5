#!/usr/bin/env bash
# Trains a recipe of gin/, or goes on with it: bash launch/train.sh RECIPE [flags]
# Flags go to the trainer: --gin.TRAIN_STEPS=1000, --gin_file=more.gin, --dry_run. You may set:
#   MODEL_DIR      where checkpoints and logs go, a folder or gs://…; default runs/RECIPE here
#   T5X_DIR        a checkout of upstream T5X, whose trainer then runs on the same gin and tasks
#   PYTHON         an interpreter to use as it is, for instance T5X's, instead of .venv
#   JAX_PLATFORMS  default cpu where there is no TPU
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

recipe="${1:-}"
if [[ -z "$recipe" || ! -f "$ROOT/gin/$recipe.gin" ]]; then
  known="$(cd "$ROOT/gin" && printf '%s ' *.gin)"
  fail "'$recipe' is no recipe of gin/: name one of ${known//.gin/}and flags after it."
fi
shift

# Absolute, unless it is a bucket: a relative one starts where you stand.
model_dir="${MODEL_DIR:-$ROOT/runs/$recipe}"
if [[ "$model_dir" != /* && "$model_dir" != *://* ]]; then
  model_dir="$PWD/$model_dir"
fi
# As a gin string. Under the repository a short path reads better in logs.
quoted="${model_dir#"$ROOT/"}"
if [[ -n "${T5X_DIR:-}" ]]; then
  quoted="$model_dir"
fi
quoted="${quoted//\\/\\\\}"
quoted="\"${quoted//\"/\\\"}\""

use_python
choose_device
flags=(--gin_file="gin/$recipe.gin" --gin.MODEL_DIR="$quoted")
path="$ROOT"
cd "$ROOT"
if [[ -n "${T5X_DIR:-}" ]]; then
  if [[ ! -f "$T5X_DIR/t5x/train.py" ]]; then
    fail "T5X_DIR is $T5X_DIR, which has no t5x/train.py: name a checkout of upstream T5X."
  fi
  T5X_DIR="$(cd "$T5X_DIR" && pwd)"
  path="$T5X_DIR:$ROOT"
  flags+=(--gin_search_paths="$T5X_DIR")
  # Python and gin both look into the current folder first. So this one has everything of the
  # repository but t5x/.
  mkdir -p runs/.upstream
  for entry in *; do
    if [[ "$entry" != t5x && "$entry" != runs ]]; then
      ln -sfn "$ROOT/$entry" "runs/.upstream/$entry"
    fi
  done
  cd runs/.upstream
fi
export PYTHONPATH="$path${PYTHONPATH:+:$PYTHONPATH}"
run_module t5x.train "${flags[@]}" "$@"
