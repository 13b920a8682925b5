#!/usr/bin/env bash
# Pulls the clones and starts a launch script on all workers of a slice, in tmux, so that it outlives
# the connection:
#   bash launch/tpu_run.sh NAME ZONE launch/ro_t5x_base.sh [flags of the trainer]
#   bash launch/tpu_run.sh --supervise NAME ZONE launch/ro_t5x_base.sh [flags]
# With --supervise it keeps running here and restarts a run that failed or lost its slice; see
# launch/tpu_supervise.sh. MODEL_DIR and other settings: launch/env.example.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"

if [[ "${1:-}" == --supervise ]]; then
  rm -rf "$WORK"
  exec bash "$ROOT/launch/tpu_supervise.sh" "${@:2}"
fi
take_run "NAME ZONE launch/RECIPE.sh [flags]" "$@"
use_repository
need_ready
check_model_dir

start_on_workers
echo "${RUN[*]} is started on $WORKERS workers of $NAME at commit $HEAD. To watch it:"
echo "  bash launch/tpu_status.sh $NAME $ZONE"
echo "  bash launch/tpu_logs.sh $NAME $ZONE -f"
