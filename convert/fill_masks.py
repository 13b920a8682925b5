"""Let a converted model fill in a masked part of a sentence.

    python -m convert.fill_masks runs/ro_t5x_tiny_hf "Copiii merg la <extra_id_0> în zori."
      Copiii merg la [școală] în zori.

The folder is a converted one, or holds several `checkpoint_<step>`; then the last is used. A
sentence has one mask, `<extra_id_0>`.
"""

import os
import sys
from pathlib import Path
from typing import Any, cast

from command_line import arguments
from command_line.guard import guarded
from convert.proof.torch_logits import load_torch

MASK = "<extra_id_0>"


def last_converted(folder: Path) -> Path:
    """Return the folder or its last `checkpoint_<step>`; raise ValueError if there is no model."""
    if (folder / "config.json").is_file():
        return folder
    steps = {}
    for path in folder.glob("checkpoint_*/config.json"):
        number = path.parent.name.split("_")[1]
        if number.isdigit():
            steps[int(number)] = path.parent
    if not steps:
        raise ValueError(f"{folder} holds no converted model: make one with convert/convert.sh.")
    return steps[max(steps)]


class MaskFiller:
    """A model and its tokenizer, loaded once."""

    def __init__(self, folder: Path):
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._model = load_torch(folder)
        names = [f"<extra_id_{number}>" for number in range(100)]
        self._masks = cast(list[int], self._tokenizer.convert_tokens_to_ids(names))

    def fill(self, sentence: str, tokens: int = 10) -> str:
        """Return the model's text for the sentence's mask, at most `tokens` long."""
        inputs = self._tokenizer(sentence, return_tensors="pt")
        # In the targets, the text after a mask is the text it hides, up to the next mask.
        start = [[self._model.config.decoder_start_token_id, self._masks[0]]]
        ends = [*self._masks, self._tokenizer.eos_token_id]
        found = self._model.generate(
            **inputs,
            decoder_input_ids=inputs.input_ids.new_tensor(start),
            num_beams=4,
            max_new_tokens=tokens,
            no_repeat_ngram_size=2,
            begin_suppress_tokens=[*ends, self._tokenizer.unk_token_id],
        )[0].tolist()[2:]
        length = next((i for i, token in enumerate(found) if token in ends), len(found))
        return self._tokenizer.decode(found[:length]).strip()


@guarded
def main(argv: list[str]) -> int:
    """Print each sentence with its mask filled in; return 1 after an error in one sentence."""
    parser = arguments.parser("python -m convert.fill_masks", "Fill in masks.")
    parser.add_argument("folder", type=Path, help="a converted folder, or one that holds some")
    parser.add_argument("sentences", nargs="+", help=f"each with one {MASK}")
    args = parser.parse_args(argv)
    os.environ["HF_HUB_OFFLINE"] = "1"  # the folder is all that is needed
    try:
        for sentence in args.sentences:
            if sentence.count(MASK) != 1:
                raise ValueError(f"{sentence!r} must hold {MASK} once: it marks what to fill in")
        filler = MaskFiller(last_converted(args.folder))
        for sentence in args.sentences:
            print("  " + sentence.replace(MASK, f"[{filler.fill(sentence)}]"), flush=True)
    except (ValueError, OSError) as error:
        print(f"convert.fill_masks: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
