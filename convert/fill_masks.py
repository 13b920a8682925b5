"""Let a converted model fill in a masked part of a sentence.

    python -m convert.fill_masks runs/ro_t5x_tiny_hf "Copiii merg la <extra_id_0> în zori."
      Copiii merg la [școală] în zori.

The folder is a converted one, or holds several `checkpoint_<step>`; then the last is used. A
sentence has one mask, `<extra_id_0>`.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import os
import sys
from pathlib import Path

from common import arguments
from common.errors import UserError, guarded
from convert.proof.torch_logits import MASK
from convert.text_model import TextModel


class MaskFiller(TextModel):
    """A model that fills in masks."""

    def fill(self, sentence: str, tokens: int = 10) -> str:
        """Return the model's text for the sentence's mask, at most `tokens` long."""
        inputs = self.tokenizer(sentence, return_tensors="pt")
        # In the targets, the text after a mask is the text it hides, up to the next mask.
        start = [[self.model.config.decoder_start_token_id, self.sentinels[0]]]
        ends = [*self.sentinels, self.tokenizer.eos_token_id]
        found = self.model.generate(
            **inputs,
            decoder_input_ids=inputs.input_ids.new_tensor(start),
            num_beams=4,
            max_new_tokens=tokens,
            no_repeat_ngram_size=2,
            begin_suppress_tokens=[*ends, self.tokenizer.unk_token_id],
        )[0].tolist()[2:]
        length = next((i for i, token in enumerate(found) if token in ends), len(found))
        return self.tokenizer.decode(found[:length]).strip()


@guarded
def main(argv: list[str]) -> None:
    """Print each sentence with its mask filled in."""
    parser = arguments.parser("python -m convert.fill_masks", __doc__)
    parser.add_argument("folder", type=Path, help="a converted folder, or one that holds some")
    parser.add_argument("sentences", nargs="+", help=f"each with one {MASK}")
    args = parser.parse_args(argv)
    os.environ["HF_HUB_OFFLINE"] = "1"  # the folder is all that is needed
    for sentence in args.sentences:
        if sentence.count(MASK) != 1:
            raise UserError(f"{sentence!r} must hold {MASK} once: it marks what to fill in")
    filler = MaskFiller(args.folder)
    if not filler.sentinels:
        raise UserError(f"{args.folder} has no {MASK} in its vocabulary: it fills in no masks")
    for sentence in args.sentences:
        print("  " + sentence.replace(MASK, f"[{filler.fill(sentence)}]"), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
