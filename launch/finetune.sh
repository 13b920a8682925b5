#!/usr/bin/env bash
# Fine-tunes a model on one task in one language, then evaluates it once on the test split:
#   bash launch/finetune.sh topic --language ro --model runs/ro_t5x_base [--seeds 5] [--out FOLDER]
# The first argument is the task: topic, entities, inference, paraphrase, summary or translation.
# --model is the run of a T5, one of its checkpoints, or a Hugging Face folder. With --seeds N it
# trains N times and prints means and standard deviations. The same command resumes an interrupted
# one. Flags that begin with --gin. or --gin_file= go to the trainer:
# --gin.TRAIN_STEPS_RELATIVE=500. docs/encoders.md shows how to fine-tune an encoder.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
answer_help "$@"

use_python
export_settings
exec "$PYTHON" -m evaluation.finetune "$@"
