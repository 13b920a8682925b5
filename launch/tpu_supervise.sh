#!/usr/bin/env bash
# Supervises a run until it has finished: bash launch/tpu_supervise.sh NAME ZONE launch/X.sh [flags]
# It runs here, not on the slice (use tmux or nohup to keep it running), and checks every
# TPU_POLL_SECONDS. It restarts a run that failed, and creates a preempted slice again with the same
# type and kind. The wait before a restart doubles, and it gives up after TPU_RESTARTS restarts
# without a new step. It ends when the run has finished, when tpu_stop.sh has stopped it, and when the
# trainer has rejected its configuration. Ctrl-C leaves the run alone; started again, the script
# supervises it again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"

limit="${TPU_RESTARTS:-20}"
tries=0 doubtful=0 silent=0 reached=0 started=""

say() {
  echo "$(date '+%F %T')  $*"
}

# Runs another script of launch/ and prints its last line if it fails.
call() {
  local script="$1"
  shift
  if ! bash "$ROOT/launch/$script" "$@" > "$WORK/said" 2>&1; then
    say "$(tail -n 1 "$WORK/said")"
    return 1
  fi
}

# Like look_at_slice, but continues with STATE=UNKNOWN if gcloud does not respond.
look() {
  STATE=UNKNOWN
  if (look_at_slice && echo "$STATE $WORKERS" > "$WORK/looked") 2> "$WORK/said"; then
    read -r STATE WORKERS < "$WORK/looked"
  else
    say "$(tail -n 1 "$WORK/said")"
  fi
}

is_gone() {
  [[ "$STATE" =~ ^(MISSING|PREEMPTED|TERMINATED|STOPPED|HIDDEN)$ ]]
}

# Creates the slice again as it was. A request that still waits in the queue keeps its place there.
make_slice() {
  local queue=""
  say "Creating $NAME again ($type${spot:+, spot}${reserved:+, reserved}${queued:+, queued})."
  if [[ "$STATE" == MISSING ]] && ! queue="$(queue_state 2> "$WORK/said")"; then
    say "$(tail -n 1 "$WORK/said")"
    return 1
  fi
  if [[ "$STATE" != MISSING || "$queue" =~ ^(SUSPENDED|SUSPENDING|FAILED)$ ]]; then
    call tpu_delete.sh "$NAME" "$ZONE" --yes || return
  fi
  TPU_RUNTIME="$runtime" TPU_SPOT="$spot" TPU_RESERVED="$reserved" TPU_QUEUED="$queued" \
    call tpu_create.sh "$NAME" "$type" "$ZONE" || return
  say "$NAME is available again."
}

# Starts the run on a working slice. $1: "first", "again", or "remake" to create the slice again.
start_run() {
  if is_gone || [[ "$STATE $1" == "READY remake" ]]; then
    make_slice || return
  elif [[ "$STATE" != READY ]]; then
    return 1
  elif [[ "$1" == again ]]; then
    call tpu_stop.sh "$NAME" "$ZONE" --kill || true
  fi
  call tpu_setup.sh "$NAME" "$ZONE" || return
  call tpu_run.sh "$NAME" "$ZONE" "${RUN[@]}" || return
  [[ -n "$started" ]] || reached=0 # earlier steps belong to another run
  started=yes
  say "${RUN[0]} is started on $NAME."
}

end_stopped() {
  say "$NAME was stopped by tpu_stop.sh at step $reached."
  exit 0
}

# Waits, longer each time, then calls start_run $1 unless the run was stopped meanwhile; $2 is why.
again() {
  if ((++tries > limit)); then
    fail "$NAME was restarted $limit times without a new step; the last time: $2."
  fi
  local wait=$((${TPU_BACKOFF_SECONDS:-30} * (1 << (tries > 6 ? 5 : tries - 1))))
  wait=$((wait < 900 ? wait : 900))
  say "$2; try $tries of $limit in $wait s."
  sleep "$wait"
  look
  if [[ "$STATE" == READY && -n "$started" ]]; then
    ask_workers
    [[ " ${RUN_STATES[*]} " != *" stopped "* ]] || end_stopped
  fi
  start_run "$1" || true
  doubtful=0 silent=0
}

# Reads the workers' states into ALL, the first that does not train into WHY, a rejection into REFUSED.
read_run() {
  local worker state text
  ask_workers
  ALL=" ${RUN_STATES[*]} " WHY="" REFUSED=""
  for ((worker = 0; worker < WORKERS; worker++)); do
    state="${RUN_STATES[worker]}" text="${RUN_TEXTS[worker]}"
    if ((RUN_STEPS[worker] > reached)); then
      reached="${RUN_STEPS[worker]}" tries=0
    fi
    if [[ "$state" != training ]]; then
      WHY="${WHY:-worker $worker is $state: $text}"
    fi
    if [[ "$state" == failed && "$text" == "status 2 "* ]]; then
      REFUSED="${REFUSED:-worker $worker: $text}"
    fi
  done
}

# Acts on the states of the workers.
judge_run() {
  local how=again
  read_run
  if [[ "$ALL" == *" unknown "* ]]; then how=remake; fi
  if [[ -z "$WHY" ]]; then
    started=yes doubtful=0 silent=0
  elif [[ "$ALL" =~ ^(\ (unknown|training))+\ $ ]]; then # no known state requires action
    doubtful=0
    if [[ "$ALL" == *" training "* ]]; then
      started=yes
    else
      WHY="no worker of $NAME answers: its network, or yours? ($WHY)"
    fi
    ((++silent != 4)) || say "$WHY"
  elif [[ "$ALL" =~ \ (training|unknown)\  ]] && ((++doubtful < 4)); then
    : # the others may not have noticed yet that one has ended
  elif [[ -z "$started" ]]; then # the states are those of an earlier run
    if ((tries > 0)); then
      again "$how" "the first start has failed"
    else
      start_run first || again again "the first start has failed"
    fi
  elif [[ "$ALL" == *" stopped "* ]]; then
    end_stopped
  elif [[ "${RUN_STATES[0]}" == finished && ! "$ALL" =~ \ (training|unknown|saved)\  ]]; then
    say "$NAME has finished: ${RUN_TEXTS[0]}"
    exit 0
  elif [[ -n "$REFUSED" ]]; then
    fail "the trainer rejects its configuration ($REFUSED)."
  else
    again "$how" "$WHY"
  fi
}

take_run "NAME ZONE launch/RECIPE.sh [flags]" "$@"
use_repository
look_at_slice
if [[ "$STATE" == MISSING ]]; then
  fail "the slice $NAME does not exist in $ZONE, so its type is unknown:" \
    "bash launch/tpu_create.sh $NAME TYPE $ZONE."
fi
type="$TYPE" runtime="$RUNTIME" spot="" queued="" reserved="${TPU_RESERVED:-}"
[[ "$KIND" != spot ]] || spot=1
[[ "$RESERVED" == - ]] || reserved=1
[[ "$QUEUE" == - ]] || queued=1
check_model_dir recreated
say "${RUN[*]} on $NAME ($TYPE, $KIND) is supervised until it has finished."
while true; do
  look
  if [[ "$STATE" == READY ]]; then
    judge_run
  elif is_gone; then # otherwise it is changing between the two
    again again "the slice $NAME is $STATE"
  fi
  sleep "${TPU_POLL_SECONDS:-60}"
done
