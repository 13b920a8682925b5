#!/usr/bin/env bash
# Trains a recipe of gin/, or goes on with it: bash launch/train.sh RECIPE [flags]
# Flags go to the trainer: --gin.TRAIN_STEPS=1000, --gin_file=more.gin, --dry_run. You may set:
#   MODEL_DIR      where checkpoints and logs go, a folder or gs://…; default runs/RECIPE here
#   T5X_DIR        a checkout of upstream T5X, whose trainer then runs on the same gin and tasks
#   PYTHON         an interpreter to use as it is, for instance T5X's, instead of .venv
#   JAX_PLATFORMS  default cpu where there is no TPU
#   STREAM_CACHE_DIR  a folder on this machine where what is read over the network is kept, and
#                  read ahead, so that the hub may be away; STREAM_CACHE_GB bounds it, default 50
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

recipe="${1:-}"
check_recipe "$recipe" "flags"
shift
check_flags "$@"

# Absolute, unless it is a bucket: a relative one starts where you stand.
model_dir="${MODEL_DIR:-$ROOT/runs/$recipe}"
if [[ "$model_dir" != /* && "$model_dir" != *://* ]]; then
  model_dir="$PWD/$model_dir"
fi
path="$ROOT"
folder="$ROOT"
search=()
if [[ -z "${T5X_DIR:-}" ]]; then
  model_dir="${model_dir#"$ROOT/"}" # reads better, and training starts in ROOT
elif [[ ! -f "$T5X_DIR/t5x/train.py" ]]; then
  fail "T5X_DIR is $T5X_DIR, which has no t5x/train.py: name a checkout of upstream T5X."
else
  T5X_DIR="$(cd "$T5X_DIR" && pwd)"
  path="$T5X_DIR:$ROOT"
  search=(--gin_search_paths="$T5X_DIR")
  # Python and gin both look into the current folder first. So it is one like the repository, but
  # with upstream's t5x/ in the place of ours.
  folder="$ROOT/runs/.upstream/${T5X_DIR//\//_}"
  mkdir -p "$folder"
  for entry in "$ROOT"/* "$T5X_DIR/t5x"; do
    if [[ "$entry" != "$ROOT/t5x" && "$entry" != "$ROOT/runs" ]]; then
      ln -sfn "$entry" "$folder/"
    fi
  done
fi

use_python
choose_device
cd "$folder"
export PYTHONPATH="$path${PYTHONPATH:+:$PYTHONPATH}"
run_module t5x.train --gin_file="gin/$recipe.gin" --gin.MODEL_DIR="$(gin_string "$model_dir")" \
  ${search[@]+"${search[@]}"} "$@"
