#!/usr/bin/env bash
# Trains a recipe of gin/ or resumes its run: bash launch/train.sh RECIPE [flags]
#   bash launch/train.sh ro_t5x_tiny --dry_run                  checks all, trains nothing
#   bash launch/train.sh ro_t5x_tiny --gin.TRAIN_STEPS=1000
# Flags go to the trainer. Often set are --gin.TRAIN_STEPS, --gin.BATCH_SIZE and
# --gin.TASK_FEATURE_LENGTHS; docs/settings.md lists all. --gin_file=more.gin adds a file. You may set:
#   MODEL_DIR      where checkpoints and logs go: a folder or gs://…; default runs/RECIPE
#   T5X_DIR        a checkout of upstream T5X, whose trainer then runs on the same gin and tasks;
#                  launch/upstream.sh makes one, with its packages
#   PYTHON         an interpreter to use as it is, for instance T5X's, instead of .venv
#   JAX_PLATFORMS  default cpu unless there is a TPU or GPU and the installed jax supports it
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
answer_help "$@"

use_recipe "${1:-}"
shift
use_flags "$@"

model_dir="$(absolute "${MODEL_DIR:-$ROOT/runs/$recipe}")"
trainer=(-m t5x.train)
if [[ -z "${T5X_DIR:-}" ]]; then
  model_dir="${model_dir#"$ROOT/"}" # shorter, and training starts in ROOT
else
  if [[ ! -f "$T5X_DIR/t5x/train.py" ]]; then
    fail "T5X_DIR is $T5X_DIR, which has no t5x/train.py: name a checkout of upstream T5X, such as" \
      "bash launch/upstream.sh DIR makes in DIR/t5x."
  fi
  T5X_DIR="$(cd "$T5X_DIR" && pwd)"
  export T5X_DIR TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-2}"
  if [[ -z "${PYTHON:-}" && -x "$T5X_DIR/../venv/bin/python" ]]; then
    PYTHON="$T5X_DIR/../venv/bin/python" # which launch/upstream.sh made
  fi
  trainer=(-P "$ROOT/launch/run_upstream.py" t5x.train)
fi

use_python
export_settings
cd "$ROOT"
export PYTHONPATH="${T5X_DIR:+$T5X_DIR:}$PYTHONPATH"
exec "$PYTHON" "${trainer[@]}" --gin_file="gin/$recipe.gin" --gin.MODEL_DIR="$(gin_string "$model_dir")" \
  ${flags[@]+"${flags[@]}"}
