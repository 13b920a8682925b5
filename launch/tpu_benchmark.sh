#!/usr/bin/env bash
# Times train steps on a slice, or tries whether it can train at all:
#   bash launch/tpu_benchmark.sh NAME ZONE --smoke      20 steps of the tiny recipe on all workers
#   bash launch/tpu_benchmark.sh NAME ZONE [flags]      plain, ours, flash; three batch sizes
# --smoke is the first thing to run on a new slice: it ends with "ok", or with what is wrong. It saves a
# checkpoint in MODEL_DIR/smoke-<time>, which you may delete. Without it the table of the times beside
# the compiler's count is printed, and written as JSON to runs/tpu_benchmark_<type>.json, for you to send
# as an issue. Flags are those of launch/step_benchmark.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"

# Waits until the run has ended on every worker, and prints what worker 0 is doing.
wait_for_run() {
  local before="" silent=0
  while true; do
    sleep "${TPU_POLL_SECONDS:-20}"
    ask_workers
    if [[ "${RUN_TEXTS[0]%%  *}" != "$before" ]]; then
      before="${RUN_TEXTS[0]%%  *}"
      echo "$before"
    fi
    case " ${RUN_STATES[*]} " in
      *" failed "* | *" lost "* | *" none "* | *" stopped "* | *" saved "*) return ;;
      *" unknown "*) ((++silent < 10)) || return ;;
      *" training "*) silent=0 ;;
      *) return ;;
    esac
  done
}

# Prints how each worker ended that has not finished, ends the others, and fails with the message $1.
fail_if_not_finished() {
  local worker bad=""
  for ((worker = 0; worker < WORKERS; worker++)); do
    case "${RUN_STATES[worker]}" in
      finished | training) ;;
      *)
        bad+="${bad:+, }$worker"
        echo "worker $worker: ${RUN_STATES[worker]}, ${RUN_TEXTS[worker]}" >&2
        ;;
    esac
  done
  if [[ -n "$bad" ]]; then
    on_workers "$(worker_command kill)"
    fail "$1 on worker $bad of $WORKERS: bash launch/tpu_logs.sh $NAME $ZONE ${bad%%,*} shows more."
  fi
}

take_slice "NAME ZONE [--smoke] [flags]" "$@"
smoke="" flags=()
for argument in ${ARGUMENTS[@]+"${ARGUMENTS[@]}"}; do
  if [[ "$argument" == --smoke ]]; then smoke=yes; else flags+=("$argument"); fi
done
if [[ -n "$smoke" && ${#flags[@]} -gt 0 ]]; then
  reject_argument "takes NAME ZONE, and --smoke alone" "${flags[0]}"
fi
use_repository
need_ready
RUN=(launch/step_benchmark.sh ${flags[@]+"${flags[@]}"})
if [[ -n "$smoke" ]]; then
  devices="${TYPE##*-}"
  is_number "$devices" || fail "the type of $NAME is '$TYPE', which does not end in a number."
  RUN=(launch/ro_t5x_tiny.sh --gin.TRAIN_STEPS=20 --gin.BATCH_SIZE="$((devices < 16 ? 16 : devices))")
  check_model_dir
  MODEL_DIR="${MODEL_DIR:-runs/ro_t5x_tiny}/smoke-$(date +%s)"
fi

start_on_workers
echo "${RUN[0]} is started on $WORKERS workers of $NAME ($TYPE) at commit $HEAD."
started=$SECONDS
wait_for_run
if [[ -n "$smoke" ]]; then
  fail_if_not_finished "$NAME cannot train: the run has failed"
  echo "ok: $NAME ($TYPE) has trained 20 steps on $WORKERS workers and saved a checkpoint in $MODEL_DIR," \
    "in $((SECONDS - started)) s."
  exit 0
fi
fail_if_not_finished "the benchmark has failed"
on_worker 0 "$(worker_command log 100)" 2> "$WORK/0.err" | printable | grep -v '^step ' || true
file="runs/tpu_benchmark_$TYPE.json"
mkdir -p "$ROOT/runs"
on_worker 0 "cat $(printf %q "$FOLDER")/runs/tpu_benchmark.json" 2> "$WORK/0.err" | head -c 1000000 > "$WORK/json" || true
if ! python3 -m json.tool "$WORK/json" > "$WORK/checked" 2> /dev/null; then
  fail "worker 0 has no readable runs/tpu_benchmark.json: bash launch/tpu_logs.sh $NAME $ZONE shows more."
fi
cp "$WORK/checked" "$ROOT/$file"
echo "wrote $file. It helps others: please send it as an issue."
