#!/usr/bin/env bash
# Trains a recipe of gin/ or resumes its run: bash launch/train.sh RECIPE [flags]
# Flags go to the trainer: --gin.TRAIN_STEPS=1000, --gin_file=more.gin, --dry_run. You may set:
#   MODEL_DIR      where checkpoints and logs go: a folder or gs://…; default runs/RECIPE
#   T5X_DIR        a checkout of upstream T5X, whose trainer then runs on the same gin and tasks;
#                  launch/upstream.sh makes one, with its packages
#   PYTHON         an interpreter to use as it is, for instance T5X's, instead of .venv
#   JAX_PLATFORMS  default cpu unless there is a TPU or GPU and the installed jax supports it
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

recipe="$(recipe_name "${1:-}")"
check_recipe "$recipe" "flags"
shift
check_flags "$@"

# Make a folder's path absolute: a relative one starts from the current directory.
model_dir="${MODEL_DIR:-$ROOT/runs/$recipe}"
if [[ "$model_dir" != /* && "$model_dir" != *://* ]]; then
  model_dir="$PWD/$model_dir"
fi
if [[ -z "${T5X_DIR:-}" ]]; then
  model_dir="${model_dir#"$ROOT/"}" # shorter, and training starts in ROOT
else
  use_upstream
  say_what_upstream_lacks "$recipe"
fi

use_python
choose_device
cd "$ROOT"
export PYTHONPATH="${T5X_DIR:+$T5X_DIR:}$ROOT${PYTHONPATH:+:$PYTHONPATH}"
run_module t5x.train --gin_file="gin/$recipe.gin" --gin.MODEL_DIR="$(gin_string "$model_dir")" "$@"
