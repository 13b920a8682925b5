#!/usr/bin/env bash
# Trains a recipe of gin/ or resumes its run: bash launch/train.sh RECIPE [flags]
# Flags go to the trainer: --gin.TRAIN_STEPS=1000, --gin_file=more.gin, --dry_run. You may set:
#   MODEL_DIR      where checkpoints and logs go, a folder or gs://…; default runs/RECIPE here
#   T5X_DIR        a checkout of upstream T5X, whose trainer then runs on the same gin and tasks;
#                  launch/upstream.sh makes one, with its packages
#   PYTHON         an interpreter to use as it is, for instance T5X's, instead of .venv
#   JAX_PLATFORMS  default cpu where there is no TPU
#   STREAM_CACHE_DIR  a folder on this machine that caches remote data and is filled ahead of time,
#                  so that training survives an outage; STREAM_CACHE_GB bounds it, default 50
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

recipe="${1:-}"
check_recipe "$recipe" "flags"
shift
check_flags "$@"

# Make a folder's path absolute: a relative one starts from the current directory.
model_dir="${MODEL_DIR:-$ROOT/runs/$recipe}"
if [[ "$model_dir" != /* && "$model_dir" != *://* ]]; then
  model_dir="$PWD/$model_dir"
fi
path="$ROOT"
folder="$ROOT"
search=()
if [[ -z "${T5X_DIR:-}" ]]; then
  model_dir="${model_dir#"$ROOT/"}" # shorter, and training starts in ROOT
elif [[ ! -f "$T5X_DIR/t5x/train.py" ]]; then
  fail "T5X_DIR is $T5X_DIR, which has no t5x/train.py: name a checkout of upstream T5X, such as" \
    "bash launch/upstream.sh DIR makes in DIR/t5x."
else
  T5X_DIR="$(cd "$T5X_DIR" && pwd)"
  if [[ -z "${PYTHON:-}" && -x "$T5X_DIR/../venv/bin/python" ]]; then
    PYTHON="$T5X_DIR/../venv/bin/python" # of launch/upstream.sh
  fi
  path="$T5X_DIR:$ROOT"
  search=(--gin_search_paths="$T5X_DIR")
  # Python and gin both search the current directory first. So run in a copy of the repository made
  # of links, with upstream's t5x/ in the place of this one.
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
