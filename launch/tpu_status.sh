#!/usr/bin/env bash
# Shows the state of the run on each worker: bash launch/tpu_status.sh NAME ZONE
# Exits with 0 if all workers train or have finished without error, else with 1.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"

take_slice "NAME ZONE" "$@"
if [[ ${#ARGUMENTS[@]} -gt 0 ]]; then
  reject_argument "takes NAME ZONE" "${ARGUMENTS[0]}"
fi
use_repository
need_ready
ask_workers
echo "$NAME in $ZONE is $STATE: $TYPE, $WORKERS workers, $KIND"
result=0
for ((worker = 0; worker < WORKERS; worker++)); do
  state="${RUN_STATES[worker]}"
  printf 'worker %-3s %-9s %s\n' "$worker" "$state" "${RUN_TEXTS[worker]}"
  case "$state" in
    failed | lost | unknown) result=1 ;;
  esac
done
exit "$result"
