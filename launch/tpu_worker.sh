#!/usr/bin/env bash
# The worker's side of the tpu_*.sh scripts, which call it there: bash launch/tpu_worker.sh COMMAND …
#   check             checks that a run can start, pulls, and prints the commit
#   start SCRIPT …    starts a launch script in a tmux session that outlives the connection
#   status            prints one line, separated by tabs: state, step, description
#   stop SECONDS      asks the run to save and exit, and waits for it
#   kill              ends it at once
#   log LINES [-F]    prints the run's output
# It keeps runs/.pod: the run's command, start time, process, output and exit status.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

POD="$ROOT/runs/.pod"

session() {
  tmux -L t5x "$@"
}

# Fails if a file of runs/.pod holds something other than numbers. An empty file is accepted: it is
# being written.
check_numbers() {
  local file number numbers
  for file in started pid ended; do
    numbers=()
    if [[ -f "$POD/$file" ]]; then read -ra numbers < "$POD/$file" || true; fi
    for number in ${numbers[@]+"${numbers[@]}"}; do
      is_number "$number" || fail "$POD/$file does not hold numbers: delete $POD, then start the run again."
    done
  done
}

is_running() {
  session has-session -t run 2> /dev/null
}

check() {
  command -v tmux > /dev/null || fail "tmux is missing: run bash launch/tpu_setup.sh first."
  if is_running; then
    fail "$(< "$POD/command") is running since $(date -d "@$(< "$POD/started")" '+%F %T'):" \
      "bash launch/tpu_stop.sh first."
  fi
  local said
  if ! said="$(git -C "$ROOT" pull --quiet --ff-only 2>&1)"; then
    fail "git pull failed (${said##*$'\n'}): repair the clone, or delete it and run" \
      "bash launch/tpu_setup.sh."
  fi
  echo "head $(git -C "$ROOT" rev-parse --short=12 HEAD)"
}

start() {
  if [[ ! -f "$ROOT/$1" ]]; then
    fail "$1 does not exist in $ROOT: commit and push it, or name another."
  fi
  mkdir -p "$POD"
  rm -f "$POD"/{pid,ended,stop}
  if [[ -f "$POD/output.txt" ]]; then
    mv "$POD/output.txt" "$POD/output.before.txt"
  fi
  echo "$*" > "$POD/command"
  date +%s > "$POD/started"
  local recipe="$1"
  if [[ "$1" == launch/train.sh ]]; then recipe="$(recipe_name "$2")"; fi
  echo "${MODEL_DIR:-$ROOT/runs/$(basename "$recipe" .sh)}" > "$POD/model_dir"
  # A tmux server of its own, so that it has the environment set here.
  session new-session -d -s run bash "$ROOT/launch/tpu_worker.sh" train "$@"
}

# Runs inside tmux. The launch scripts exec the trainer, so that the recorded process is the trainer's.
train() {
  local status=0
  set -m # in a process group of its own, for kill
  cd "$ROOT"
  bash "$@" > "$POD/output.txt" 2>&1 < /dev/null &
  echo "$!" > "$POD/pid"
  wait "$!" || status=$?
  echo "$status $(date +%s)" > "$POD/ended"
}

stop() {
  # Also marks a run that has failed: launch/tpu_supervise.sh may be about to restart it.
  if [[ -d "$POD" && ! "$(status)" =~ ^(none|finished) ]]; then touch "$POD/stop"; fi
  is_running || return 0
  kill -TERM "$(< "$POD/pid")" 2> /dev/null || true
  wait_for_end "$1" || fail "the run is still saving, or hangs."
}

kill_run() {
  if is_running; then
    kill -KILL -- "-$(< "$POD/pid")" 2> /dev/null || true
    wait_for_end 20 || session kill-server
  fi
}

wait_for_end() {
  local end=$((SECONDS + $1))
  while is_running; do
    ((SECONDS < end)) || return 1
    sleep 0.2
  done
}

log() {
  [[ -f "$POD/output.txt" ]] || fail "nothing has run here yet."
  exec tail -n "$@" "$POD/output.txt"
}

# Prints the path of the run's log: in MODEL_DIR if that is a folder, else in the temporary folder,
# where common/log.py creates it.
log_file() {
  local newest
  # shellcheck disable=SC2012
  newest="$(ls -t "$(< "$POD/model_dir")/log_${WORKER:-0}.txt" "${TMPDIR:-/tmp}"/t5x-*.log \
    2> /dev/null | head -n 1 || true)"
  if [[ -n "$newest" && "$(stat -c %Y "$newest")" -ge "$(< "$POD/started")" ]]; then
    echo "$newest"
  fi
}

# Prints the end of the log $1, from the start of this run: "date time … step 40/60  loss 5.238 …".
log_of_run() {
  tail -c 200000 "$1" | awk -v since="$(date -d "@$(< "$POD/started")" '+%F %T')" \
    '$1 " " $2 >= since'
}

was_asked_to_stop() { # -c, because -q would end early and break the pipe
  grep -aqs 'Stopped by .* at step' "$POD/output.txt" \
    || { [[ -n "$1" ]] && log_of_run "$1" | grep -ac 'Stopped by .* at step' > /dev/null; }
}

# Sets STEP and its description SAID from the trainer's log; 0 and empty before the first step.
read_progress() {
  local file="$1" lines=()
  STEP=0 SAID=""
  if [[ -n "$file" ]]; then
    mapfile -t lines < <(log_of_run "$file" | grep -aE ' step [0-9,]+/[0-9,]+' | tail -n 2)
  fi
  if [[ ${#lines[@]} == 0 && -f "$POD/output.txt" ]]; then
    mapfile -t lines < <(grep -aE '^step [0-9,]+/[0-9,]+' "$POD/output.txt" | tail -n 1)
  fi
  if [[ ${#lines[@]} -gt 0 ]]; then
    local last="${lines[-1]}" loss=""
    STEP="$(step_of "$last")"
    is_number "$STEP" || STEP=0
    [[ "$last" =~ loss\ ([0-9.a-z]+) ]] && loss="  loss ${BASH_REMATCH[1]}"
    SAID="step $(sed -E 's/.*step ([0-9,]+\/[0-9,]+).*/\1/' <<< "$last")$loss"
    if [[ ${#lines[@]} == 2 ]]; then
      SAID+="$(rate "${lines[@]}")"
    fi
  fi
}

step_of() {
  sed -E 's/.*step ([0-9,]+)\/.*/\1/; s/,//g' <<< "$1"
}

# Prints the steps per second between two lines of the log.
rate() {
  awk -v a="$(seconds_of "$1")" -v b="$(seconds_of "$2")" -v m="$(step_of "$1")" \
    -v n="$(step_of "$2")" 'BEGIN { if (b > a && n > m) printf "  %.3g steps/s", (n - m) / (b - a) }'
}

seconds_of() {
  date -d "${1:0:23}" +%s.%N
}

ago() {
  local seconds=$(($(date +%s) - $1))
  if ((seconds < 60)); then
    echo "${seconds}s ago"
  elif ((seconds < 3600)); then
    echo "$((seconds / 60))m ago"
  else
    printf '%dh %02dm ago\n' $((seconds / 3600)) $((seconds % 3600 / 60))
  fi
}

# none: nothing has run. training. finished: reached its last step. saved: saved and exited on a signal.
# stopped: by tpu_stop.sh. failed: with a status. lost: the worker has rebooted meanwhile.
status() {
  local state="" code at file text
  if [[ ! -f "$POD/started" ]]; then
    printf 'none\t0\tnothing has run here yet\n'
    return
  fi
  if is_running; then state=training; fi # before its last output is read
  file="$(log_file)"
  read_progress "$file"
  if [[ "$state" == training ]]; then
    text="${SAID:-no step yet}  last output $(ago "$(stat -c %Y "${file:-$POD/started}")")"
  elif [[ ! -f "$POD/ended" ]]; then
    state=lost text="its run is gone: did the worker reboot?"
    if [[ -f "$POD/stop" ]]; then state=stopped; fi
  else
    read -r code at < "$POD/ended"
    text="${SAID:+$SAID  }ended $(ago "$at")"
    if [[ -f "$POD/stop" ]]; then
      state=stopped
    elif [[ "$code" != 0 ]]; then
      state="failed" text="status $code $(ago "$at")  $(tail -n 1 "$POD/output.txt")"
    elif was_asked_to_stop "$file"; then
      state=saved
    else
      state=finished
    fi
  fi
  printf '%s\t%s\t%s\n' "$state" "$STEP" "$text"
}

case "${1:-}" in
  start | train) "$@" ;;
  check | status | stop | log)
    check_numbers
    "$@"
    ;;
  kill)
    check_numbers
    kill_run
    ;;
  *) fail "'${1:-}' is not understood: check, start, status, stop, kill or log." ;;
esac
