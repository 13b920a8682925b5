#!/usr/bin/env bash
# Stops the run on a slice: bash launch/tpu_stop.sh NAME ZONE [--kill]
# The run saves and exits, which may take minutes. With --kill, for a run that hangs, it ends at once
# and loses the steps since its last checkpoint. Exits with 1 if a worker's state is unknown afterwards.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"

take_slice "NAME ZONE [--kill]" "$@"
how=(stop "${TPU_STOP_SECONDS:-600}")
for argument in ${ARGUMENTS[@]+"${ARGUMENTS[@]}"}; do
  case "$argument" in
    --kill) how=(kill) ;;
    *) reject_argument "takes NAME ZONE, --kill" "$argument" ;;
  esac
done
use_repository
need_ready
on_workers "$(worker_command "${how[@]}")"
fail_if_any_failed "the run has not ended within ${TPU_STOP_SECONDS:-600} s (--kill ends it at once)"
ask_workers
result=0
for ((worker = 0; worker < WORKERS; worker++)); do
  echo "worker $worker  ${RUN_STATES[worker]}  ${RUN_TEXTS[worker]}"
  if [[ "${RUN_STATES[worker]}" == unknown ]]; then result=1; fi
done
exit "$result"
