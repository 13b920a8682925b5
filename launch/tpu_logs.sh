#!/usr/bin/env bash
# What the run on a slice says: bash launch/tpu_logs.sh NAME ZONE [-f] [WORKER]
# The last 100 lines of worker 0, or of another; with -f on and on, until Ctrl-C.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"

take_slice "NAME ZONE [-f] [WORKER]" "$@"
words=(100)
worker=0
for word in ${WORDS[@]+"${WORDS[@]}"}; do
  case "$word" in
    -f) words=(20 -F) ;;
    *[!0-9]*) refuse_word "takes NAME ZONE, -f, the number of a worker" "$word" ;;
    *) worker="$word" ;;
  esac
done
use_repository
need_ready
if ((worker >= WORKERS)); then
  fail "there is no worker $worker: $NAME has $WORKERS, counted from 0."
fi
on_worker "$worker" "$(worker_command log "${words[@]}")" 2> "$WORK/$worker.err" || {
  echo "$?" > "$WORK/$worker.status"
  fail "worker $worker shows no log: $(why_failed "$worker")"
}
