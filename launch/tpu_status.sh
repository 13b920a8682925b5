#!/usr/bin/env bash
# How the run on a slice is, worker by worker: bash launch/tpu_status.sh NAME ZONE
# Ends with 0 where all workers train or have ended well, else with 1.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"

take_slice "NAME ZONE" "$@"
if [[ ${#WORDS[@]} -gt 0 ]]; then
  refuse_word "takes NAME ZONE" "${WORDS[0]}"
fi
use_repository
need_ready
ask_workers
echo "$NAME in $ZONE is $STATE: $TYPE, $WORKERS workers, $KIND"
well=0
for ((worker = 0; worker < WORKERS; worker++)); do
  state="${RUN_STATES[worker]}"
  printf 'worker %-3s %-9s %s\n' "$worker" "$state" "${RUN_TEXTS[worker]}"
  case "$state" in
    failed | lost | unknown) well=1 ;;
  esac
done
exit "$well"
