#!/usr/bin/env bash
# Stops the run on a slice: bash launch/tpu_stop.sh NAME ZONE [--kill]
# It saves and ends, which may take some minutes. With --kill it ends at once and loses what it has
# done since its last checkpoint: for a run that hangs.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"

take_slice "NAME ZONE [--kill]" "$@"
how=(stop "${TPU_STOP_SECONDS:-600}")
for word in ${WORDS[@]+"${WORDS[@]}"}; do
  case "$word" in
    --kill) how=(kill) ;;
    *) refuse_word "takes NAME ZONE, --kill" "$word" ;;
  esac
done
use_repository
need_ready
on_workers "$(worker_command "${how[@]}")"
refuse_failures "the run has not ended within ${TPU_STOP_SECONDS:-600} s (--kill ends it at once)"
ask_workers
for ((worker = 0; worker < WORKERS; worker++)); do
  echo "worker $worker  ${RUN_STATES[worker]}  ${RUN_TEXTS[worker]}"
done
