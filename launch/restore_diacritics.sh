#!/usr/bin/env bash
# Restores diacritics: echo "Fata vine maine" | bash launch/restore_diacritics.sh [MODEL] [flags]
# MODEL is a run's folder (its best checkpoint if one was recorded, else its newest) or one of its
# checkpoints, on this machine; default runs/ro_diacritics_tiny. The output differs from the input
# only by diacritics. Flags go to t5x.infer, such as --gin.MIXTURE_OR_TASK_MODULE="'tasks.my_task'" for
# a task of your own: of the run's folder only sizes, names and weights are read, and nothing is run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
answer_help "$@"

model="$ROOT/runs/ro_diacritics_tiny"
if [[ $# -gt 0 && "$1" != --* ]]; then
  if [[ "$1" == *://* ]]; then
    run="${1%/}"
    run="${run%/checkpoint_*}"
    how="'$run' to runs/"
    if [[ "$run" == gs://* ]]; then how="the run (gcloud storage cp -r '$run' runs/)"; fi
    fail "$1 is not on this machine: copy $how and name runs/$(basename "$run") here."
  fi
  model="$(absolute "${1%/}")"
  shift
fi
checkpoint="$model"
mode=latest
if [[ -f "$model/best.json" ]]; then
  mode=best
fi
if [[ "$(basename "$model")" == checkpoint_* ]]; then
  model="$(dirname "$model")"
  mode=specific
fi
if [[ ! -f "$model/config.gin" ]]; then
  fail "$model is not a run's folder: it has no config.gin. Train one (bash launch/train.sh ro_diacritics_tiny) or name another."
fi

use_python
export_settings
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$ROOT"
"$PYTHON" -m tasks.jobs.diacritics.restore settings "$model" > "$work/model.gin"
"$PYTHON" -m tasks.jobs.diacritics.restore read > "$work/lines.txt"
"$PYTHON" -m t5x.infer --gin_file="$work/model.gin" --gin_file=t5x/configs/runs/infer.gin \
  --gin.CHECKPOINT_PATH="$(gin_string "$checkpoint")" \
  --gin.utils.RestoreCheckpointConfig.mode="$(gin_string "$mode")" \
  --gin.INFER_OUTPUT_DIR="$(gin_string "$work/out")" --gin.BATCH_SIZE=8 \
  --gin.tasks.jobs.diacritics.lines.path="$(gin_string "$work/lines.txt")" \
  "$@" 1>&2 2> "$work/said" || { cat "$work/said" >&2; exit 1; }
"$PYTHON" -m tasks.jobs.diacritics.restore write "$work/lines.txt" "$work"/out/*-predict.jsonl
