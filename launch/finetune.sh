#!/usr/bin/env bash
# Fine-tunes a model on a job of a language and measures it on the test split, once:
#   bash launch/finetune.sh topic --language ro --model runs/ro_t5x_base [--seeds 5] [--out FOLDER]
# JOB is topic, entities, inference, paraphrase, summary or translation, of an encoder similarity;
# MODEL is a run of a T5 or an encoder, one of its checkpoints, or a Hugging Face folder. With --seeds
# it prints means and deviations. Run again, it resumes. Other flags go to the trainer:
# --gin.TRAIN_STEPS_RELATIVE=500.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

use_python
choose_device
export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
exec "$PYTHON" -m benchmarks.finetune "$@"
