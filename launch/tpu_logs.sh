#!/usr/bin/env bash
# Shows the output of the run on a slice: bash launch/tpu_logs.sh NAME ZONE [-f] [WORKER]
# Prints the last 100 lines of worker 0 or WORKER; -f follows the output until Ctrl-C.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"

take_slice "NAME ZONE [-f] [WORKER]" "$@"
tail_flags=(100)
worker=0
for argument in ${ARGUMENTS[@]+"${ARGUMENTS[@]}"}; do
  case "$argument" in
    -f) tail_flags=(20 -F) ;;
    *)
      is_number "$argument" \
        || reject_argument "takes NAME ZONE, -f, the number of a worker" "$argument"
      worker="$argument"
      ;;
  esac
done
use_repository
need_ready
if ((worker >= WORKERS)); then
  fail "worker $worker does not exist: $NAME has $WORKERS, counted from 0."
fi
on_worker "$worker" "$(worker_command log "${tail_flags[@]}")" 2> "$WORK/$worker.err" | printable || {
  echo "$?" > "$WORK/$worker.status"
  fail "worker $worker shows no log: $(why_failed "$worker")"
}
