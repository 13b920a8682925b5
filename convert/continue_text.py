"""Let a converted model continue the beginning of a text.

    python -m convert.continue_text runs/ro_simple_tiny_hf "Ana se trezește dimineața și"
      Ana se trezește dimineața și [se spală pe mâini. Apoi bea un pahar cu lapte.]

For a model that was trained with prefix language modelling. The folder is a converted one, or holds
several `checkpoint_<step>`; then the last is used. Words are drawn at random among the likely ones,
with a fixed seed, and the text ends with its last complete sentence.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import os
import sys
from pathlib import Path

from common import arguments
from common.errors import guarded
from convert.text_model import TextModel

ENDS = (".", "!", "?", "”")


class TextContinuer(TextModel):
    """A model that continues texts."""

    def continue_text(self, beginning: str, tokens: int = 40, seed: int = 0) -> str:
        """Return the model's continuation: complete sentences of at most `tokens` tokens."""
        import torch

        torch.manual_seed(seed)
        # The decoder reads the beginning as text that it has written: a model learns to follow its
        # own text long before it learns to follow the encoder's.
        nothing, begun = self.tokenizer(["", beginning]).input_ids
        start = [self.model.config.decoder_start_token_id, *begun[:-1]]
        found = self.model.generate(
            inputs=torch.tensor([nothing]),
            decoder_input_ids=torch.tensor([start]),
            do_sample=True,
            top_k=10,
            temperature=0.7,
            max_new_tokens=tokens,
            suppress_tokens=[*self.sentinels, self.tokenizer.unk_token_id],
        )[0].tolist()
        text = self.tokenizer.decode(found[len(start) :], skip_special_tokens=True).strip()
        end = max(text.rfind(mark) for mark in ENDS) + 1
        return text[:end] or text


@guarded
def main(argv: list[str]) -> None:
    """Print each beginning with its continuation."""
    parser = arguments.parser("python -m convert.continue_text", __doc__)
    add = parser.add_argument
    add("folder", type=Path, help="a converted folder, or one that holds some")
    add("beginnings", nargs="+", type=arguments.text, help="the beginning of a text")
    add("--tokens", type=arguments.integer(1), default=40, help="most pieces to add, default 40")
    add("--seed", type=arguments.integer(0), default=0, help="another one draws other words")
    args = parser.parse_args(argv)
    os.environ["HF_HUB_OFFLINE"] = "1"  # the folder is all that is needed
    continuer = TextContinuer(args.folder)
    for beginning in args.beginnings:
        text = continuer.continue_text(beginning, args.tokens, args.seed)
        print(f"  {beginning} [{text}]", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
