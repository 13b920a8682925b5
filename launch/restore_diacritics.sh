#!/usr/bin/env bash
# Restores diacritics: echo "Fata vine maine" | bash launch/restore_diacritics.sh [MODEL] [flags]
# MODEL is a run's folder (its best checkpoint if one was recorded, else its newest) or one of its
# checkpoints, on this machine; default runs/ro_diacritics_tiny. With --constrained the output
# differs from the input only by diacritics. Other flags go to t5x.infer.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

model="$ROOT/runs/ro_diacritics_tiny"
if [[ $# -gt 0 && "$1" != --* ]]; then
  if [[ "$1" == *://* ]]; then
    run="${1%/}"
    run="${run%/checkpoint_*}"
    how="'$run' to runs/"
    if [[ "$run" == gs://* ]]; then how="the run (gcloud storage cp -r '$run' runs/)"; fi
    fail "$1 is not on this machine: copy $how and name runs/$(basename "$run") here."
  fi
  model="$(realpath -m "$1")"
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
config="$model/config.gin"
if [[ ! -f "$config" ]]; then
  fail "$model is not a run's folder: it has no config.gin. Train one (bash launch/ro_diacritics_tiny.sh) or name another."
fi
# The model may be another's: its text is neither used as a path nor as gin unless it is a name.
task="$(sed -nE "s/^MIXTURE_OR_TASK_NAME = '([A-Za-z0-9_.:]+)'$/\1/p" "$config" | tail -n 1)"
module="$(sed -nE "s/^MIXTURE_OR_TASK_MODULE = ('[A-Za-z0-9_.]+')$/\1/p" "$config" | tail -n 1)"
if [[ -z "$task" ]]; then
  fail "$config names no task: it has no line MIXTURE_OR_TASK_NAME = '…' with a name of letters and digits."
fi
flags=()
for flag in "$@"; do
  if [[ "$flag" == --constrained ]]; then
    flags+=(--gin.infer_script.infer.constraint=@tasks.diacritics.only_diacritics\(\)
      --gin.tasks.diacritics.only_diacritics.task=%MIXTURE_OR_TASK_NAME)
  else
    flags+=("$flag")
  fi
done

use_python
choose_device
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$ROOT"
export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
"$PYTHON" -m tasks.diacritics.restore read > "$work/lines.txt"
# A run that names its task's module by a flag has no import in its gin file.
printf '%s\n' 'from __gin__ import dynamic_registration' 'import tasks.diacritics' > "$work/tasks.gin"
"$PYTHON" -m t5x.infer --gin_file="$config" --gin_file="$work/tasks.gin" --gin_file=t5x/configs/runs/infer.gin \
  --gin.MIXTURE_OR_TASK_NAME="$(gin_string "${task}_lines")" \
  --gin.MIXTURE_OR_TASK_MODULE="${module:-None}" \
  --gin.CHECKPOINT_PATH="$(gin_string "$checkpoint")" \
  --gin.utils.RestoreCheckpointConfig.mode="$(gin_string "$mode")" \
  --gin.INFER_OUTPUT_DIR="$(gin_string "$work/out")" --gin.BATCH_SIZE=8 \
  --gin.tasks.diacritics.lines.path="$(gin_string "$work/lines.txt")" \
  ${flags[@]+"${flags[@]}"} 1>&2 2> "$work/said" || { cat "$work/said" >&2; exit 1; }
"$PYTHON" -m tasks.diacritics.restore write "$work/lines.txt" "$work/out/${task}_lines-predict.jsonl"
