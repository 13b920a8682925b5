# shellcheck shell=bash
# Sourced by the tpu_*.sh scripts: settings, the state of the slice, commands on its workers.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

# The environment overrides launch/env.
if [[ -f "$ROOT/launch/env" ]]; then
  given="$(export -p)"
  set -a
  # shellcheck source=/dev/null
  source "$ROOT/launch/env"
  set +a
  eval "$given"
fi

WORK="$(mktemp -d)"
trap 'rm -rf "$WORK"' EXIT
trap 'exit 130' INT  # gcloud handles Ctrl-C itself; without this the script would continue
# Settings that are computed with, or given to a worker.
for setting in TPU_SSH_SECONDS TPU_STOP_SECONDS TPU_BACKOFF_SECONDS TPU_RESTARTS; do
  if [[ -n "${!setting:-}" ]] && ! is_number "${!setting}"; then
    fail "$setting is '${!setting}', not an integer: set it to one, or leave it out."
  fi
done
# Properties of the slice, set by look_at_slice.
STATE="" TYPE="" RUNTIME="" KIND="" RESERVED="" QUEUE="" WORKERS=0

# Runs gcloud, for at most LIMIT seconds if that is set.
tpus() {
  timeout --foreground "${LIMIT:-0}" gcloud --quiet ${TPU_PROJECT:+"--project=$TPU_PROJECT"} compute tpus "$@" < /dev/null
}

is_zone() {
  [[ "$1" =~ ^[a-z]+-[a-z]+[0-9]+-[a-z0-9]+$ ]]
}

# Reads NAME ZONE from the arguments after $1, the usage, and leaves the rest in ARGUMENTS. The
# settings may name them instead.
take_slice() {
  local usage="$1"
  shift
  if [[ $# -ge 2 && "$1" != -* ]] && is_zone "$2"; then
    NAME="$1" ZONE="$2"
    shift 2
  elif [[ -n "${TPU_NAME:-}" && -n "${TPU_ZONE:-}" ]]; then
    NAME="$TPU_NAME" ZONE="$TPU_ZONE"
  else
    fail "name the slice and its zone: bash launch/$(basename "$0") $usage, or set TPU_NAME and" \
      "TPU_ZONE in launch/env."
  fi
  ARGUMENTS=("$@")
  need_gcloud
}

need_gcloud() {
  command -v gcloud > /dev/null \
    || fail "gcloud is not installed: see https://cloud.google.com/sdk/docs/install."
}

# Rejects the unknown argument $2; $1 says what the script takes.
reject_argument() {
  fail "'$2' is not understood: bash launch/$(basename "$0") $1."
}

# Prints the error of gcloud in the file $1.
gcloud_error() {
  { grep -m 1 ERROR "$1" || tail -n 1 "$1"; } | printable
}

was_not_found() {
  grep -qiE 'NOT_FOUND|was not found' "$1"
}

# Reads the slice's properties; STATE is MISSING if it does not exist.
# shellcheck disable=SC2034
look_at_slice() {
  local format='value[separator=" "](state,acceleratorType,runtimeVersion,'
  format+='schedulingConfig.spot.yesno(yes="spot",no="on-demand"),'
  format+='schedulingConfig.reserved.yesno(yes="reserved",no="-"),'
  format+='queuedResource.basename().yesno(no="-"),networkEndpoints.len())'
  if tpus tpu-vm describe "$NAME" --zone="$ZONE" --format="$format" \
    > "$WORK/slice" 2> "$WORK/gcloud_errors"; then
    if ! grep -qxE '[A-Z_]+( [A-Za-z0-9.:_/-]+){5} (0|[1-9][0-9]{0,4})' "$WORK/slice"; then
      fail "gcloud describes $NAME in $ZONE as '$(head -n 1 "$WORK/slice" | printable)', not by" \
        "state, type, runtime, kind, reservation, queue and number of workers."
    fi
    read -r STATE TYPE RUNTIME KIND RESERVED QUEUE WORKERS < "$WORK/slice"
  elif was_not_found "$WORK/gcloud_errors"; then
    STATE=MISSING
  else
    fail "gcloud cannot describe $NAME in $ZONE: $(gcloud_error "$WORK/gcloud_errors")"
  fi
}

# Prints the state of the queued resource with the slice's name, MISSING if it does not exist.
queue_state() {
  if tpus queued-resources describe "$NAME" --zone="$ZONE" --format='value(state.state)' \
    2> "$WORK/gcloud_errors" | printable; then
    return
  elif was_not_found "$WORK/gcloud_errors"; then
    echo MISSING
  else
    fail "gcloud cannot describe the queued $NAME in $ZONE: $(gcloud_error "$WORK/gcloud_errors")"
  fi
}

need_ready() {
  look_at_slice
  case "$STATE" in
    READY) ;;
    MISSING) fail "the slice $NAME does not exist in $ZONE: bash launch/tpu_create.sh $NAME TYPE $ZONE." ;;
    *) fail "the slice $NAME is $STATE, not READY: wait, or bash launch/tpu_delete.sh $NAME $ZONE." ;;
  esac
}

# Sets FOLDER, the clone in each worker's home, and TPU_REPO, the URL it is cloned from.
use_repository() {
  if [[ -z "${TPU_REPO:-}" ]]; then
    TPU_REPO="$(git -C "$ROOT" remote get-url origin 2> /dev/null || true)"
    # Workers do not have your ssh key.
    if [[ "$TPU_REPO" =~ ^git@([^:]+):(.*)$ ]]; then
      TPU_REPO="https://${BASH_REMATCH[1]}/${BASH_REMATCH[2]}"
    fi
  fi
  FOLDER="${TPU_FOLDER:-$(basename "${TPU_REPO:-}" .git)}"
  if [[ -z "$FOLDER" ]]; then
    fail "this clone has no origin: set TPU_REPO in launch/env to the URL that workers clone."
  fi
}

# Runs the command line $2 on worker $1.
on_worker() {
  local ssh=(--zone="$ZONE" --worker="$1" --ssh-flag=-oConnectTimeout=20
    --ssh-flag=-oServerAliveInterval=15 ${TPU_INTERNAL_IPS:+--internal-ip})
  tpus tpu-vm ssh "$NAME" "${ssh[@]}" --command="$2"
}

# Runs the command line $1 on all workers at the same time, each with its number in WORKER. Their
# output is in $WORK/<worker>, their errors in $WORK/<worker>.err, their status in .status. A worker
# writes both files: what is read there is checked before it is used, and printed by `printable`.
on_workers() {
  local worker
  for ((worker = 0; worker < WORKERS; worker++)); do
    while (($(jobs -rp | wc -l) >= 32)); do wait -n || true; done
    {
      local status=0
      on_worker "$worker" "export WORKER=$worker; $1" > "$WORK/$worker" 2> "$WORK/$worker.err" \
        || status=$?
      echo "$status" > "$WORK/$worker.status"
    } &
  done
  wait
}

# Prints a command line that runs launch/tpu_worker.sh with these arguments in the worker's clone.
worker_command() {
  local missing="there is no clone in ~/$FOLDER: run bash launch/tpu_setup.sh $NAME $ZONE first."
  printf 'cd %q 2> /dev/null || { echo %q >&2; exit 2; }; %s bash launch/tpu_worker.sh %s' \
    "$FOLDER" "$missing" "${PASSED:-}" "$(printf '%q ' "$@")"
}

# If a worker failed, prints one line for each that did and fails with the message $1.
fail_if_any_failed() {
  local worker failed=""
  for ((worker = 0; worker < WORKERS; worker++)); do
    if [[ "$(< "$WORK/$worker.status")" != 0 ]]; then
      failed+="${failed:+, }$worker"
      echo "worker $worker: $(why_failed "$worker")" >&2
    fi
  done
  if [[ -n "$failed" ]]; then
    fail "$1 on worker $failed of $WORKERS."
  fi
}

# Prints why a worker failed: the sentence of one of these scripts if there is one, else the last line.
why_failed() {
  local file="$WORK/$1.err"
  {
    if ! sed -n 's/^[a-z_]*\.sh: //p' "$file" | tail -n 1 | grep -a .; then
      grep -avE '^(SSH: |Using ssh|#####)' "$file" | tail -n 1 | grep -a . \
        || echo "no answer (status $(< "$WORK/$1.status"))"
    fi
  } | printable
}

# Prints the commit that all workers have reported as "head <commit>", and fails if they differ or
# none has.
common_head() {
  local worker head heads=""
  for ((worker = 0; worker < WORKERS; worker++)); do
    head="$(sed -nE 's/^head ([0-9a-f]{7,40})$/\1/p' "$WORK/$worker" | tail -n 1)"
    heads+="${heads:+$'\n'}${head:-none} worker $worker"
  done
  if [[ "$(cut -d ' ' -f 1 <<< "$heads" | sort -u | wc -l)" != 1 ]]; then
    fail "the workers have different commits ($(paste -sd , <<< "$heads" | sed 's/,/, /g')):" \
      "run bash launch/tpu_setup.sh $NAME $ZONE."
  fi
  if [[ "$heads" == none* ]]; then
    fail "not every worker has reported its commit: run bash launch/tpu_setup.sh $NAME $ZONE."
  fi
  cut -d ' ' -f 1 <<< "$heads" | head -n 1
}

# Reads the state of the run on every worker into RUN_STATES, RUN_STEPS and RUN_TEXTS. A worker that
# does not answer is "unknown". The other states are none, training, finished, saved, stopped, failed
# and lost; see tpu_worker.sh.
ask_workers() {
  local worker
  RUN_STATES=() RUN_STEPS=() RUN_TEXTS=()
  LIMIT="${TPU_SSH_SECONDS:-120}" on_workers "$(worker_command status)"
  for ((worker = 0; worker < WORKERS; worker++)); do
    local state="" step="" text=""
    if [[ "$(< "$WORK/$worker.status")" == 0 ]]; then
      IFS=$'\t' read -r state step text < <(head -c 10000 "$WORK/$worker" | printable) || true
      if [[ ! "$state" =~ ^(none|training|finished|saved|stopped|failed|lost)$ ]] || ! is_number "$step"; then
        text="answers '$state' and '$step', not a state and a step: bash launch/tpu_setup.sh $NAME $ZONE"
        state="" step=""
      fi
    elif grep -q '^there is no clone' "$WORK/$worker.err"; then
      state=none text="$(why_failed "$worker")" # the worker does answer
    fi
    RUN_STATES+=("${state:-unknown}")
    RUN_STEPS+=("${step:-0}")
    RUN_TEXTS+=("${text:-does not answer: $(why_failed "$worker")}")
  done
}

# Reads NAME ZONE SCRIPT [flags] from the arguments after $1, the usage. RUN is the script and its
# flags; launch/train.sh has the recipe before them.
take_run() {
  local flags=1
  take_slice "$@"
  RUN=(${ARGUMENTS[@]+"${ARGUMENTS[@]}"})
  if [[ " ${RUN[*]-} " == *" --supervise "* ]]; then
    fail "--supervise comes first: bash launch/tpu_run.sh --supervise NAME ZONE launch/RECIPE.sh."
  fi
  if [[ ! "${RUN[0]:-}" =~ \.sh$ || ! -f "$ROOT/${RUN[0]}" ]]; then
    fail "'${RUN[0]:-}' is not a launch script of this clone: name one, such as launch/ro_t5x_base.sh."
  fi
  if [[ "${RUN[0]}" == launch/train.sh ]]; then
    check_recipe "$(recipe_name "${RUN[1]:-}")" "flags"
    flags=2
  fi
  check_flags "${RUN[@]:flags}"
}

# Pulls the clones and starts RUN on all workers, with MODEL_DIR and the other settings that are
# passed; sets HEAD, their commit.
# shellcheck disable=SC2034
start_on_workers() {
  local name
  on_workers "$(worker_command check)"
  fail_if_any_failed "nothing was started: a run cannot start"
  HEAD="$(common_head)"
  PASSED=""
  # shellcheck disable=SC2086
  for name in MODEL_DIR ${TPU_PASS:-}; do
    if [[ ! "$name" =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]]; then
      fail "TPU_PASS names '$name', which is no variable: write names with spaces between them."
    fi
    if [[ -n "${!name:-}" ]]; then
      PASSED+="$name=$(printf '%q' "${!name}") "
    fi
  done
  on_workers "$(worker_command start "${RUN[@]}")"
  fail_if_any_failed "${RUN[0]} could not be started everywhere (bash launch/tpu_stop.sh $NAME $ZONE ends the others)"
}

# Prints the MODEL_DIR of RUN: its last --gin.MODEL_DIR without quotes, else the variable.
model_dir_of_run() {
  local argument found="${MODEL_DIR:-}"
  for argument in "${RUN[@]}"; do
    if [[ "$argument" == --gin.MODEL_DIR=* ]]; then
      found="$(sed -E "s/^[[:space:]]*[\"']?//; s/[\"']?[[:space:]]*$//" <<< "${argument#*=}")"
    fi
  done
  printf '%s\n' "$found"
}

# Requires a shared MODEL_DIR if there are several workers or if the slice may be created again ($1:
# "recreated"). Whether an absolute path is one is not known here.
check_model_dir() {
  local why="" model_dir
  if [[ "$WORKERS" -gt 1 ]]; then
    why="$WORKERS workers need one folder that all of them can write to"
  elif [[ "${1:-}" == recreated ]]; then
    why="a slice that is created again has an empty disk"
  fi
  model_dir="$(model_dir_of_run)"
  if [[ -z "$why" || "$model_dir" == *://* || "$model_dir" == [%@]* ]]; then # % is another gin setting
    return 0
  elif [[ "$model_dir" != /* ]]; then
    fail "MODEL_DIR is '$model_dir' and $why: set it to gs://bucket/run (or to a folder that is" \
      "mounted on every worker)."
  fi
  echo "warning: MODEL_DIR is $model_dir: unless that folder is mounted from elsewhere, it is deleted" \
    "with the slice." >&2
}
