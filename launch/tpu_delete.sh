#!/usr/bin/env bash
# Deletes a slice, its disks and its place in the queue: bash launch/tpu_delete.sh NAME ZONE [--yes]
# A MODEL_DIR in a bucket is kept. Asks first, unless --yes is given. A running tpu_run.sh --supervise
# would create the slice again: end it first.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"
USAGE="takes NAME ZONE, --yes"

take_slice "NAME ZONE [--yes]" "$@"
sure=""
for argument in ${ARGUMENTS[@]+"${ARGUMENTS[@]}"}; do
  case "$argument" in
    --yes) sure=yes ;;
    *) reject_argument "$USAGE" "$argument" ;;
  esac
done
look_at_slice
queue="$(queue_state)"
if [[ "$STATE $queue" == "MISSING MISSING" ]]; then
  echo "There is no slice $NAME in $ZONE."
  exit 0
fi
if [[ -z "$sure" ]]; then
  what="$NAME ($TYPE, $STATE) and the disks of its $WORKERS workers"
  if [[ "$STATE" == MISSING ]]; then
    what="the request for $NAME ($queue)"
  fi
  hint="a running --supervise would create it again: end that first"
  read -r -p "Delete $what in $ZONE ($hint)? [y/N] " sure || true
  if [[ ! "$sure" =~ ^[yY] ]]; then
    fail "nothing was deleted."
  fi
fi
if [[ "$queue" != MISSING ]]; then
  tpus queued-resources delete "$NAME" --zone="$ZONE" --force
fi
look_at_slice # deleting the request may have deleted the slice
if [[ "$STATE" != MISSING ]]; then
  tpus tpu-vm delete "$NAME" --zone="$ZONE"
fi
echo "$NAME is deleted."
