"""Let a converted T5 fill in a masked part of a text, or continue the beginning of one.

    python -m convert.generate runs/ro_t5x_tiny_hf "Copiii merg la <extra_id_0> în zori."
      Copiii merg la [școală] în zori.
    python -m convert.generate runs/ro_simple_tiny_hf "Ana se trezește dimineața și"
      Ana se trezește dimineața și [se spală pe mâini. Apoi bea un pahar cu lapte.]

The folder is a converted one, or holds several `checkpoint_<step>`; then the last is used. A model
of span corruption fills in the mask `<extra_id_0>`, a model of prefix language modelling continues
texts. It draws from the likely words with a fixed seed, and stops after a complete sentence.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import os
import sys
from pathlib import Path
from typing import Any

from common import arguments
from common.errors import UserError, guarded
from common.printable import printable
from convert.formats.hf_checkpoint_reader import read_json
from convert.formats.sentencepiece_model import MODEL_FILES
from convert.proof.same_ids import sentinel_ids
from convert.proof.torch_logits import MASK, load_torch
from convert.tokenizer import FILES

ENDS = (".", "!", "?", "”")


class TextGenerator:
    """A converted T5 and its tokenizer."""

    def __init__(self, folder: Path):
        from transformers import AutoTokenizer

        folder = last_converted(folder)
        if not read_json(folder, "config.json").get("is_encoder_decoder"):
            raise UserError(str(folder), why="holds no T5, and others write no text")
        if not any((folder / name).is_file() for name in (*FILES, *MODEL_FILES)):
            to_set = "convert the run without --vocabulary none"
            raise UserError(str(folder), why="holds no tokenizer", to_set=to_set)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model = load_torch(folder)
        self.sentinels = sentinel_ids(self.tokenizer)

    def fill_in(self, text: str, tokens: int = 10) -> str:
        """Return what the mask of a text hides, at most `tokens` long, by beam search."""
        inputs = self.tokenizer(text, return_tensors="pt")
        # In the targets, the text after a mask is the text it hides, up to the next mask.
        start = [[self.model.config.decoder_start_token_id, self.sentinels[0]]]
        ends = [*self.sentinels, self.tokenizer.eos_token_id]
        ids = self.model.generate(
            **inputs,
            decoder_input_ids=inputs.input_ids.new_tensor(start),
            num_beams=4,
            max_new_tokens=tokens,
            no_repeat_ngram_size=2,
            begin_suppress_tokens=[*ends, self.tokenizer.unk_token_id],
        )[0].tolist()[2:]
        length = next((i for i, token in enumerate(ids) if token in ends), len(ids))
        return self.tokenizer.decode(ids[:length]).strip()

    def continue_text(self, beginning: str, tokens: int = 40, seed: int = 0) -> str:
        """Return complete sentences, of at most `tokens` tokens, that follow the beginning."""
        import torch

        torch.manual_seed(seed)
        # The decoder reads the beginning as text that it has written: a model learns to follow its
        # own text long before it learns to follow the encoder's.
        empty, prompt = self.tokenizer(["", beginning]).input_ids
        start = [self.model.config.decoder_start_token_id, *prompt[:-1]]
        ids = self.model.generate(
            inputs=torch.tensor([empty]),
            decoder_input_ids=torch.tensor([start]),
            do_sample=True,
            top_k=10,
            temperature=0.7,
            max_new_tokens=tokens,
            suppress_tokens=[*self.sentinels, self.tokenizer.unk_token_id],
        )[0].tolist()
        text = self.tokenizer.decode(ids[len(start) :], skip_special_tokens=True).strip()
        end = max(text.rfind(mark) for mark in ENDS) + 1
        return text[:end] or text


def converted_folders(folder: Path) -> list[Path]:
    """Return the converted checkpoints in a folder, the last one last, after its means."""
    parts = [path.parent for path in folder.glob("checkpoint_*/config.json")]
    steps = {part: part.name.split("_")[1] for part in parts}
    numbered = [part for part in parts if steps[part].isdigit()]
    is_single = lambda part: part.name == f"checkpoint_{steps[part]}"
    return sorted(numbered, key=lambda part: (int(steps[part]), is_single(part), part))


def last_converted(folder: Path) -> Path:
    """Return the folder or its last `checkpoint_<step>`; raise UserError if there is no model."""
    if (folder / "config.json").is_file():
        return folder
    if not (parts := converted_folders(folder)):
        raise UserError(
            str(folder), why="holds no converted model", to_set="make one with convert/convert.sh"
        )
    return parts[-1]


@guarded
def main(argv: list[str]) -> None:
    """Print each text with what the model writes into or after it."""
    parser = arguments.parser("python -m convert.generate", __doc__)
    add = parser.add_argument
    add("folder", type=Path, help="a converted folder, or one that holds some")
    add("texts", nargs="+", type=arguments.text, help=f"with {MASK}, or the beginning of a text")
    about = "most tokens to write (default: 10 for a mask, 40 after a beginning)"
    add("--tokens", type=arguments.integer(1), help=about)
    about = "of the words after a beginning; another one draws other words"
    add("--seed", type=arguments.integer(0), default=0, help=about)
    args = parser.parse_args(argv)
    for text in args.texts:
        if text.count(MASK) > 1:
            raise UserError(
                "text", text, f"but may hold {MASK} only once", "name one mask at a time"
            )
    os.environ["HF_HUB_OFFLINE"] = "1"  # the folder is all that is needed
    generator = TextGenerator(args.folder)
    if any(MASK in text for text in args.texts) and not generator.sentinels:
        raise UserError(str(args.folder), why=f"has no {MASK}, so it fills in no masks")
    for text in args.texts:
        if MASK in text:
            output = text.replace(MASK, f"[{generator.fill_in(text, args.tokens or 10)}]")
        else:
            output = f"{text} [{generator.continue_text(text, args.tokens or 40, args.seed)}]"
        print(f"  {printable(output)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
