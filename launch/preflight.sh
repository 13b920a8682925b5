#!/usr/bin/env bash
# Checks a recipe and estimates its cost before a TPU is rented: bash launch/preflight.sh RECIPE SLICE [flags]
#   bash launch/preflight.sh ro_t5x_base v4-8                       needs no accelerator
#   bash launch/preflight.sh ro_t5x_base v4-8 --offline --gin.BATCH_SIZE=256
#   bash launch/preflight.sh ro_t5x_base here                       times it on the devices that are there
# MODEL_DIR as in launch/train.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
answer_help "$@"

use_recipe "${1:-}"
shift
slice=()
if [[ "${1:---}" != -* ]]; then
  slice=(--slice "$1")
  shift
elif [[ " $* " != *" --slice"[\ =]* ]]; then
  fail "name a slice, such as v4-8, or here."
fi

use_flags "$@"
model_dir="$(absolute "${MODEL_DIR:-$ROOT/runs/$recipe}")"
use_python
if [[ " ${slice[*]-} $* " != *" --slice"[\ =]"here "* ]]; then
  export JAX_PLATFORMS=cpu
fi
export_settings
cd "$ROOT"
exec "$PYTHON" -m preflight --gin_file="gin/$recipe.gin" ${slice[@]+"${slice[@]}"} \
  --gin.MODEL_DIR="$(gin_string "${model_dir#"$ROOT/"}")" ${flags[@]+"${flags[@]}"}
