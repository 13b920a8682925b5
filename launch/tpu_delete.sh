#!/usr/bin/env bash
# Deletes a slice, its disks and its place in the queue: bash launch/tpu_delete.sh NAME ZONE [--yes]
# MODEL_DIR in a bucket stays. Asks first, unless --yes is given. A tpu_run.sh --supervise that looks
# after it would make it anew: end that first.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"
USAGE="takes NAME ZONE, --yes"

take_slice "NAME ZONE [--yes]" "$@"
sure=""
for word in ${WORDS[@]+"${WORDS[@]}"}; do
  case "$word" in
    --yes) sure=yes ;;
    *) refuse_word "$USAGE" "$word" ;;
  esac
done
look_at_slice
queue="$(queue_state)"
if [[ "$STATE $queue" == "MISSING MISSING" ]]; then
  echo "There is no slice $NAME in $ZONE."
  exit 0
fi
if [[ -z "$sure" ]]; then
  what="$NAME ($TYPE, $STATE) and what lies on its $WORKERS workers"
  if [[ "$STATE" == MISSING ]]; then
    what="the request for $NAME ($queue)"
  fi
  hint="a --supervise of it would make it anew: end that first"
  read -r -p "Delete $what in $ZONE ($hint)? [y/N] " sure || true
  if [[ ! "$sure" =~ ^[yY] ]]; then
    fail "nothing was deleted."
  fi
fi
if [[ "$queue" != MISSING ]]; then
  tpus queued-resources delete "$NAME" --zone="$ZONE" --force
fi
look_at_slice # the queue takes its slice along
if [[ "$STATE" != MISSING ]]; then
  tpus tpu-vm delete "$NAME" --zone="$ZONE"
fi
echo "$NAME is deleted."
