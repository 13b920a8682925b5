#!/usr/bin/env bash
# Makes a TPU slice: bash launch/tpu_create.sh NAME TYPE ZONE [--spot] [--queued] [--reserved]
#   bash launch/tpu_create.sh ro v4-32 us-central2-b --spot --queued
# A queued request that is there already is waited for again. Types: v2-8, v3-32, v4-32, v5e-16
# (v5litepod-16), v5p-8, v6e-8, … Network, project, runtime and the like: launch/env.example.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"
USAGE="takes NAME TYPE ZONE, --spot, --queued, --reserved"

# What is preinstalled on its workers, by generation; a slice of several hosts is a pod.
runtime_of() {
  case "$1" in
    v2-* | v3-*) echo v2-alpha ;;
    v4-8) echo v2-alpha-tpuv4 ;;
    v4-*) echo v2-alpha-tpuv4-pod ;;
    v5litepod-*) echo v2-alpha-tpuv5-lite ;;
    v5p-*) echo v2-alpha-tpuv5 ;;
    v6e-*) echo v2-alpha-tpuv6e ;;
    *) fail "the runtime of $1 is not known: set TPU_RUNTIME (gcloud compute tpus versions list)." ;;
  esac
}

# Waits until the queue has given the slice, also while gcloud cannot tell.
wait_in_queue() {
  local state before=""
  while true; do
    state="$(queue_state)" || state="$before"
    if [[ "$state" != "$before" ]]; then
      echo "$(date '+%F %T')  the request for $NAME is $state"
      before="$state"
    fi
    case "$state" in
      ACTIVE) return ;;
      FAILED | SUSPENDED | SUSPENDING | DELETING | MISSING)
        fail "the request for $NAME is $state and gives no slice: bash launch/tpu_delete.sh" \
          "$NAME $ZONE, then ask again."
        ;;
    esac
    sleep "${TPU_POLL_SECONDS:-60}"
  done
}

words=()
for word in "$@"; do
  case "$word" in
    --spot) TPU_SPOT=1 ;;
    --queued) TPU_QUEUED=1 ;;
    --reserved) TPU_RESERVED=1 ;;
    -*) refuse_word "$USAGE" "$word" ;;
    *) words+=("$word") ;;
  esac
done
if [[ ${#words[@]} == 1 && -n "${TPU_NAME:-}" && -n "${TPU_ZONE:-}" ]]; then
  words=("$TPU_NAME" "${words[0]}" "$TPU_ZONE")
fi
if [[ ${#words[@]} != 3 ]] || ! is_zone "${words[2]}" || [[ ! "${words[1]}" =~ ^v[0-9][a-z]*-[0-9]+$ ]]; then
  fail "name the slice, its type and its zone: bash launch/tpu_create.sh ro v4-32 us-central2-b" \
    "[--spot] [--queued] [--reserved], or set TPU_NAME and TPU_ZONE in launch/env and name the type."
fi
NAME="${words[0]}" TYPE="${words[1]/#v5e-/v5litepod-}" ZONE="${words[2]}"
need_gcloud
wanted="$TYPE"
runtime="${TPU_RUNTIME:-$(runtime_of "$TYPE")}"
look_at_slice
queue=MISSING
if [[ -n "${TPU_QUEUED:-}" ]]; then
  queue="$(queue_state)"
fi
if [[ "$STATE" != MISSING && ("$STATE" != CREATING || "$queue" == MISSING) ]]; then
  fail "there is a slice $NAME in $ZONE already ($TYPE, $STATE): go on with it, or" \
    "bash launch/tpu_delete.sh $NAME $ZONE."
fi

options=(--zone="$ZONE" --accelerator-type="$wanted"
  ${TPU_SPOT:+--spot} ${TPU_RESERVED:+--reserved} ${TPU_INTERNAL_IPS:+--internal-ips}
  ${TPU_NETWORK:+"--network=$TPU_NETWORK"} ${TPU_SUBNETWORK:+"--subnetwork=$TPU_SUBNETWORK"}
  ${TPU_SERVICE_ACCOUNT:+"--service-account=$TPU_SERVICE_ACCOUNT"})
if [[ "$queue" != MISSING ]]; then
  echo "There is a request for $NAME already; it is waited for."
  wait_in_queue
elif [[ -n "${TPU_QUEUED:-}" ]]; then
  tpus queued-resources create "$NAME" --node-id="$NAME" --runtime-version="$runtime" \
    "${options[@]}" ${TPU_QUEUE_FOR:+"--valid-until-duration=$TPU_QUEUE_FOR"} --async
  wait_in_queue
else
  tpus tpu-vm create "$NAME" --version="$runtime" "${options[@]}"
fi
look_at_slice
echo "$NAME is $STATE: $TYPE, $WORKERS workers, $KIND. Next: bash launch/tpu_setup.sh $NAME $ZONE"
