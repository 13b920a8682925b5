#!/usr/bin/env bash
# Opens TensorBoard for a run, or for all of runs/: bash launch/monitor.sh [MODEL_DIR] [flags]
# MODEL_DIR is a folder or gs://…; flags go to TensorBoard: --port=6007, --host=0.0.0.0.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

model_dir="$ROOT/runs"
if [[ $# -gt 0 && "$1" != -* ]]; then
  model_dir="$1"
  shift
fi
if [[ "$model_dir" != *://* && ! -d "$model_dir" ]]; then
  fail "$model_dir is not a folder: name the MODEL_DIR of a run."
fi
use_python
export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
exec "$PYTHON" -m report.tensorboard --logdir="$model_dir" --reload_interval=15 "$@"
