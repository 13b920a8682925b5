#!/usr/bin/env bash
# The whole road on a small model, in minutes and without an accelerator: bash launch/quickstart.sh
# Sets up .venv, trains gin/ro_t5x_tiny.gin on data/ro_mini, converts the checkpoints to Hugging
# Face folders, and lets the last one fill in masked sentences. Run again, it goes on where it
# stopped. Flags go to the trainer; MODEL_DIR names another folder for the run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

SENTENCES=(
  "Copiii merg la <extra_id_0> în fiecare dimineață."
  "Toamna, frunzele copacilor <extra_id_0> și cad pe pământ."
  "Bunica a pus pe masă <extra_id_0> și un pahar cu lapte."
)

export MODEL_DIR="${MODEL_DIR:-$ROOT/runs/ro_t5x_tiny}"
if [[ "$MODEL_DIR" == *://* ]]; then
  fail "MODEL_DIR is $MODEL_DIR: the quickstart needs a folder of this machine."
fi
# The trainer takes Ctrl-C for a wish to save and leave, and ends well; nothing is to follow then.
trap 'echo "Stopped; the same command goes on from here."; exit 130' INT

took=()
# step TITLE COMMAND…: runs one of the steps and notes how long it took.
step() {
  local begin=$SECONDS
  printf '\n%s\n' "$1"
  "${@:2}"
  took+=("$1: $((SECONDS - begin)) s")
}

# Without the notices of TensorFlow, which is imported for the proof of the tokenizer.
convert() {
  bash "$ROOT/convert/convert.sh" "$MODEL_DIR" \
    2> >(sed -u -E '/^(WARNING: All log messages before absl|I0000 )/d' >&2)
}

fill_in() {
  HF_HUB_OFFLINE=1 "$PYTHON" - "${MODEL_DIR}_hf" "${SENTENCES[@]}" << 'PYTHON'
import pathlib, sys
from transformers import AutoTokenizer, T5ForConditionalGeneration, utils

utils.logging.set_verbosity_error()
utils.logging.disable_progress_bar()
folders = pathlib.Path(sys.argv[1]).glob("checkpoint_*")
folder = max(folders, key=lambda path: int(path.name.split("_")[1]))
tokenizer = AutoTokenizer.from_pretrained(folder)
model = T5ForConditionalGeneration.from_pretrained(folder)
masks = [tokenizer.convert_tokens_to_ids(f"<extra_id_{i}>") for i in range(100)]
for sentence in sys.argv[2:]:
    inputs = tokenizer(sentence, return_tensors="pt")
    # What follows the first mask in the targets is what the mask hides, up to the next mask.
    start = inputs.input_ids.new_tensor([[model.config.decoder_start_token_id, masks[0]]])
    tokens = model.generate(
        **inputs, decoder_input_ids=start, num_beams=4, max_new_tokens=10, no_repeat_ngram_size=2,
        begin_suppress_tokens=[*masks, tokenizer.eos_token_id, tokenizer.unk_token_id],
    )[0].tolist()[2:]
    ends = [i for i, token in enumerate(tokens) if token in (*masks, tokenizer.eos_token_id)]
    filling = tokenizer.decode(tokens[: ends[0] if ends else None]).strip()
    print("  " + sentence.replace("<extra_id_0>", f"[{filling}]"))
PYTHON
}

losses() {
  PYTHONPATH="$ROOT" "$PYTHON" - "$MODEL_DIR" << 'PYTHON'
import pathlib, sys
from convert.curve import loss_curve

for name, points in loss_curve(pathlib.Path(sys.argv[1])).items():
    if name.startswith("training_eval/"):
        (first, before), (last, after) = points[0], points[-1]
        print(f"  {before:.2f} at step {first:,}, {after:.2f} at step {last:,}: "
              f"{before - after:.2f} less")
PYTHON
}

step "1. Set up .venv" use_python
step "2. Train a small T5 on Romanian text" bash "$ROOT/launch/ro_t5x_tiny.sh" "$@"
step "3. Convert its checkpoints to Hugging Face" convert
step "4. Fill in what is masked" fill_in

printf '\nAll is done. Validation loss, in nats a token:\n'
losses
printf '\n'
printf '  %-13s%s\n' \
  "checkpoints" "$MODEL_DIR" \
  "converted" "${MODEL_DIR}_hf" \
  "curves" "$PYTHON -m tensorboard.main --logdir $MODEL_DIR"
printf '\n'
printf '  %s\n' "${took[@]}"
