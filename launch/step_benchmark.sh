#!/usr/bin/env bash
# Times train steps on the devices of this machine: bash launch/step_benchmark.sh [flags]
#   bash launch/step_benchmark.sh --recipe t5_1_1/small --rows 8 --steps 10
# Prints a table and writes runs/tpu_benchmark.json. On a slice:
#   python3 launch/tpu.py run NAME ZONE launch/step_benchmark.sh
# Flags are those of benchmarks/tpu_step.py: --recipe, --set, --rows, --inputs, --targets,
# --partitions, --steps, --out.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

use_python
choose_device
cd "$ROOT"
export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}" TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-2}"
exec "$PYTHON" benchmarks/tpu_step.py "$@"
