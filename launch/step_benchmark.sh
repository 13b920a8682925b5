#!/usr/bin/env bash
# Times train steps on the devices of this machine: bash launch/step_benchmark.sh [flags]
#   bash launch/step_benchmark.sh --recipe t5_1_1/small --rows 8 --steps 10
# Prints a table and writes runs/tpu_benchmark.json. On a slice:
#   python3 launch/tpu.py run NAME ZONE launch/step_benchmark.sh
# Flags are those of benchmarks/tpu_step.py: --recipe, --set, --rows, --inputs, --targets,
# --partitions, --steps, --out.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
answer_help "$@"

use_python
export_settings
export TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-2}"
cd "$ROOT"
exec "$PYTHON" benchmarks/tpu_step.py "$@"
