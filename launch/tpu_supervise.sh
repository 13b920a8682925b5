#!/usr/bin/env bash
# Keeps a run going until it is finished: bash launch/tpu_supervise.sh NAME ZONE launch/X.sh [flags]
# It runs here, not on the slice (tmux or nohup keeps it when you leave), and looks every
# TPU_POLL_SECONDS. A run that died is started again; a slice that was taken is made anew, of the
# same type and kind, and set up; each time after a longer wait, and at most TPU_RESTARTS times
# without a new step. It ends when the run is finished, when tpu_stop.sh has stopped it, and when the
# trainer has refused what it was given. Ended by Ctrl-C it leaves the run alone; started again it
# takes it over.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"

limit="${TPU_RESTARTS:-20}"
tries=0 doubtful=0 silent=0 reached=0 started=""

say() {
  echo "$(date '+%F %T')  $*"
}

# Runs another script of ours about the slice, and says what it has said where it fails.
call() {
  local script="$1"
  shift
  if ! bash "$ROOT/launch/$script" "$@" > "$WORK/said" 2>&1; then
    say "$(tail -n 1 "$WORK/said")"
    return 1
  fi
}

# look_at_slice, which ends a script where gcloud gives no answer; we are more patient.
look() {
  STATE=UNKNOWN
  if (look_at_slice && echo "STATE=$STATE WORKERS=$WORKERS" > "$WORK/looked") 2> "$WORK/said"; then
    # shellcheck source=/dev/null
    source "$WORK/looked"
  else
    say "$(tail -n 1 "$WORK/said")"
  fi
}

is_gone() {
  [[ "$STATE" =~ ^(MISSING|PREEMPTED|TERMINATED|STOPPED|HIDDEN)$ ]]
}

# Makes the slice anew as it was. A request that still waits in the queue keeps its place there.
make_slice() {
  local queue=""
  say "$NAME is made anew ($type${spot:+, spot}${reserved:+, reserved}${queued:+, queued})."
  if [[ "$STATE" == MISSING ]] && ! queue="$(queue_state 2> "$WORK/said")"; then
    say "$(tail -n 1 "$WORK/said")"
    return 1
  fi
  if [[ "$STATE" != MISSING || "$queue" =~ ^(SUSPENDED|SUSPENDING|FAILED)$ ]]; then
    call tpu_delete.sh "$NAME" "$ZONE" --yes || return
  fi
  TPU_RUNTIME="$runtime" TPU_SPOT="$spot" TPU_RESERVED="$reserved" TPU_QUEUED="$queued" \
    call tpu_create.sh "$NAME" "$type" "$ZONE" || return
  say "$NAME is there again."
}

# Starts the run, on a slice that is as it should be; $1: "remake" where it is not to be trusted.
go_on() {
  if is_gone || [[ "$STATE $1" == "READY remake" ]]; then
    make_slice || return
  elif [[ "$STATE" != READY ]]; then
    return 1
  elif [[ "$1" == again ]]; then
    call tpu_stop.sh "$NAME" "$ZONE" --kill || true
  fi
  call tpu_setup.sh "$NAME" "$ZONE" || return
  call tpu_run.sh "$NAME" "$ZONE" "${RUN[@]}" || return
  [[ -n "$started" ]] || reached=0 # what was before it was of another run
  started=yes
  say "${RUN[0]} is started on $NAME."
}

end_stopped() {
  say "$NAME was stopped by tpu_stop.sh at step $reached."
  exit 0
}

# Waits, longer each time, then goes on as $1 says, unless it was stopped meanwhile; $2 is why.
again() {
  if ((++tries > limit)); then
    fail "$NAME was started again $limit times without a new step; the last time: $2."
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
  go_on "$1" || true
  doubtful=0 silent=0
}

# Reads what the workers say into ALL (their states), WHY (the first that does not train), REFUSED.
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

# Does what the states of the workers ask for.
judge_run() {
  local how=again
  read_run
  if [[ "$ALL" == *" unknown "* ]]; then how=remake; fi
  if [[ -z "$WHY" ]]; then
    started=yes doubtful=0 silent=0
  elif [[ "$ALL" =~ ^(\ (unknown|training))+\ $ ]]; then # nothing known asks for anything
    doubtful=0
    if [[ "$ALL" == *" training "* ]]; then
      started=yes
    else
      WHY="no worker of $NAME answers: its network, or yours? ($WHY)"
    fi
    ((++silent != 4)) || say "$WHY"
  elif [[ "$ALL" =~ \ (training|unknown)\  ]] && ((++doubtful < 4)); then
    : # one that has ended may not have been noticed yet by the others
  elif [[ -z "$started" ]]; then # the workers tell of an earlier run
    if ((tries > 0)); then
      again "$how" "the first start has failed"
    else
      go_on first || again again "the first start has failed"
    fi
  elif [[ "$ALL" == *" stopped "* ]]; then
    end_stopped
  elif [[ "${RUN_STATES[0]}" == finished && ! "$ALL" =~ \ (training|unknown|saved)\  ]]; then
    say "$NAME has finished: ${RUN_TEXTS[0]}"
    exit 0
  elif [[ -n "$REFUSED" ]]; then
    fail "the trainer refuses what it was given ($REFUSED)."
  else
    again "$how" "$WHY"
  fi
}

take_run "NAME ZONE launch/RECIPE.sh [flags]" "$@"
use_repository
look_at_slice
if [[ "$STATE" == MISSING ]]; then
  fail "there is no slice $NAME in $ZONE, whose type would tell what to make anew:" \
    "bash launch/tpu_create.sh $NAME TYPE $ZONE."
fi
type="$TYPE" runtime="$RUNTIME" spot="" queued="" reserved="${TPU_RESERVED:-}"
[[ "$KIND" != spot ]] || spot=1
[[ "$RESERVED" == - ]] || reserved=1
[[ "$QUEUE" == - ]] || queued=1
check_model_dir anew
say "${RUN[*]} on $NAME ($TYPE, $KIND) is looked after until it is finished."
while true; do
  look
  if [[ "$STATE" == READY ]]; then
    judge_run
  elif is_gone; then # else it is on its way to one or the other
    again again "the slice $NAME is $STATE"
  fi
  sleep "${TPU_POLL_SECONDS:-60}"
done
