#!/usr/bin/env bash
# All steps on a small model, in minutes and without an accelerator: bash launch/quickstart.sh
# Sets up .venv, trains gin/ro_simple_tiny.gin on data/ro_simple, converts the checkpoints to Hugging
# Face folders, and lets the last one continue some texts. Run again, it resumes where it
# stopped. Flags go to the trainer; MODEL_DIR names another folder for the run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
answer_help "$@"

BEGINNINGS=(
  "Ana se trezește dimineața și"
  "Afară ninge. Copiii"
  "Bunica pune pe masă"
)

export MODEL_DIR="${MODEL_DIR:-$ROOT/runs/ro_simple_tiny}"
if [[ "$MODEL_DIR" == *://* ]]; then
  fail "MODEL_DIR is $MODEL_DIR: the quickstart needs a folder on this machine."
fi
mkdir -p "$MODEL_DIR"
MODEL_DIR="$(cd "$MODEL_DIR" && pwd -P)"  # as the converter names its folder after it
# On Ctrl-C the trainer saves and exits with status 0; the later steps must not run then.
trap 'echo "Stopped; the same command resumes from here."; exit 130' INT

took=()
# step TITLE COMMAND…: runs one step and records how long it took.
step() {
  local begin=$SECONDS
  printf '\n%s\n' "$1"
  "${@:2}"
  took+=("$1: $((SECONDS - begin)) s")
}

continue_texts() {
  PYTHONPATH="$ROOT" "$PYTHON" -m convert.generate "${MODEL_DIR}_hf" "${BEGINNINGS[@]}" --tokens 24 --seed 2
}

losses() {
  PYTHONPATH="$ROOT" "$PYTHON" -m convert.run.loss_curve "$MODEL_DIR"
}

step "1. Set up .venv" use_python
step "2. Train a small T5 on Romanian text" bash "$ROOT/launch/ro_simple_tiny.sh" "$@"
step "3. Convert its checkpoints to Hugging Face" \
  bash "$ROOT/convert/convert.sh" "$MODEL_DIR" --language ro --license cc0-1.0
step "4. Continue the beginnings of texts" continue_texts

printf '\nDone. Validation loss in nats per token:\n'
losses
printf '\n'
printf '  %-13s%s\n' \
  "checkpoints" "$MODEL_DIR" \
  "converted" "${MODEL_DIR}_hf" \
  "curves" "$(printf '%q -m tensorboard.main --logdir=%q' "$PYTHON" "$MODEL_DIR")"
printf '\n'
printf '  %s\n' "${took[@]}"
