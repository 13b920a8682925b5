#!/usr/bin/env bash
# Creates a TPU slice: bash launch/tpu_create.sh NAME TYPE ZONE [--spot] [--queued] [--reserved]
#   bash launch/tpu_create.sh ro v4-32 us-central2-b --spot --queued
# If a queued request exists already, the script waits for it. Types: v2-8, v3-32, v4-32, v5e-16
# (v5litepod-16), v5p-8, v6e-8, … Network, project, runtime and other settings: launch/env.example.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"
USAGE="takes NAME TYPE ZONE, --spot, --queued, --reserved"

# Prints the default runtime (the image of the workers) of a type; several hosts are a pod.
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

# Waits until the queue has granted the slice, also while gcloud does not respond.
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
        fail "the request for $NAME is $state and provides no slice: bash launch/tpu_delete.sh" \
          "$NAME $ZONE, then ask again."
        ;;
    esac
    sleep "${TPU_POLL_SECONDS:-60}"
  done
}

arguments=()
for argument in "$@"; do
  case "$argument" in
    --spot) TPU_SPOT=1 ;;
    --queued) TPU_QUEUED=1 ;;
    --reserved) TPU_RESERVED=1 ;;
    -*) reject_argument "$USAGE" "$argument" ;;
    *) arguments+=("$argument") ;;
  esac
done
if [[ ${#arguments[@]} == 1 && -n "${TPU_NAME:-}" && -n "${TPU_ZONE:-}" ]]; then
  arguments=("$TPU_NAME" "${arguments[0]}" "$TPU_ZONE")
fi
if [[ ${#arguments[@]} != 3 ]] || ! is_zone "${arguments[2]}" || [[ ! "${arguments[1]}" =~ ^v[0-9][a-z]*-[0-9]+$ ]]; then
  fail "name the slice, its type and its zone: bash launch/tpu_create.sh ro v4-32 us-central2-b" \
    "[--spot] [--queued] [--reserved], or set TPU_NAME and TPU_ZONE in launch/env and name the type."
fi
NAME="${arguments[0]}" TYPE="${arguments[1]/#v5e-/v5litepod-}" ZONE="${arguments[2]}"
need_gcloud
wanted="$TYPE"
runtime="${TPU_RUNTIME:-$(runtime_of "$TYPE")}"
look_at_slice
queue=MISSING
if [[ -n "${TPU_QUEUED:-}" ]]; then
  queue="$(queue_state)"
fi
if [[ "$STATE" != MISSING && ("$STATE" != CREATING || "$queue" == MISSING) ]]; then
  fail "the slice $NAME exists in $ZONE already ($TYPE, $STATE): use it, or" \
    "bash launch/tpu_delete.sh $NAME $ZONE."
fi

options=(--zone="$ZONE" --accelerator-type="$wanted"
  ${TPU_SPOT:+--spot} ${TPU_RESERVED:+--reserved} ${TPU_INTERNAL_IPS:+--internal-ips}
  ${TPU_NETWORK:+"--network=$TPU_NETWORK"} ${TPU_SUBNETWORK:+"--subnetwork=$TPU_SUBNETWORK"}
  ${TPU_SERVICE_ACCOUNT:+"--service-account=$TPU_SERVICE_ACCOUNT"})
if [[ "$queue" != MISSING ]]; then
  echo "A request for $NAME exists already; waiting for it."
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
