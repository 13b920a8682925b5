#!/usr/bin/env bash
# Measures what pretrained models can do: bash launch/evaluate.sh MODEL … --language CODE [flags]
#   bash launch/evaluate.sh runs/ro_t5x_base --language ro                      its newest checkpoint
#   bash launch/evaluate.sh runs/ro_t5x_base --language ro --every_checkpoint   the report draws them
#   bash launch/evaluate.sh runs/ro_t5x_base google/mt5-small --language ro     side by side
# MODEL is a run, one checkpoint, a Hugging Face folder or a name of the hub. Flags are those of
# `python -m evaluation`: --text, --pairs, --out and others.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
answer_help "$@"

use_python
export_settings
exec "$PYTHON" -m evaluation "$@"
