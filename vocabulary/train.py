"""Trains a SentencePiece vocabulary on streamed text.

    python -m vocabulary.train --corpus 'corpus/*.jsonl' --size 64000 --out ro.model
    python -m vocabulary.train --corpus owner/name --config ro --split train --column text \\
        --max_documents 2000000 --size 64000 --out ro.model

The model is a unigram one with T5's normalization (nmt_nfkc), pad 0, eos 1, unk 2, no bos, and
the 100 sentinels as its last pieces; `--size` counts all of them. The same text and the same
settings give the same file, byte for byte. Source: https://arxiv.org/abs/1808.06226.
"""

import argparse
import io
import os
import re
import string
import sys
import time
from collections.abc import Iterable, Iterator

import sentencepiece

from vocabulary import corpus, proto
from vocabulary.check import check_vocabulary
from vocabulary.findings import Finding, passed, table

SIZE_MULTIPLE = 128
# These become pieces however rare they are: a vocabulary that lacks a capital Q or a Ț would
# write it as <unk> for ever.
REQUIRED_CHARACTERS = (
    string.ascii_letters + string.digits + string.punctuation + "ăâîșțĂÂÎȘȚ„”«»–—’"
)


def check_size(size: int) -> None:
    """Raises ValueError unless `size` is a multiple of 128 with room for more than sentinels."""
    if size % SIZE_MULTIPLE or size < 2 * SIZE_MULTIPLE:
        below = max(size // SIZE_MULTIPLE, 2) * SIZE_MULTIPLE
        raise ValueError(
            f"--size {size} is not a multiple of {SIZE_MULTIPLE} from {2 * SIZE_MULTIPLE} up, "
            "which accelerators and model parallelism ask of an embedding: "
            f"set --size {below} or {below + SIZE_MULTIPLE}"
        )


def train_vocabulary(
    lines: Iterable[str],
    size: int,
    *,
    byte_fallback: bool = False,
    character_coverage: float = 0.9999,
    required_characters: str = REQUIRED_CHARACTERS,
    max_lines: int = 5_000_000,
    seed: int = 0,
    verbose: bool = False,
) -> proto.ModelProto:
    """Trains a unigram model of exactly `size` pieces, sentinels included.

    Args:
      lines: normalized text; lines above 4,192 bytes are dropped by SentencePiece.
      size: number of pieces, a multiple of 128.
      byte_fallback: 256 byte pieces in place of <unk>, as mT5 has them.
      character_coverage: share of the text's characters that become pieces.
      required_characters: become pieces though they be rare.
      max_lines: a uniform sample of so many lines is kept in memory (about 30 bytes a
        character while fitting).
      seed: of that sample.
      verbose: shows SentencePiece's own log.

    Raises ValueError for a bad size and for a text too small or too varied for it.
    """
    check_size(size)
    plain_size = size - proto.NUM_SENTINELS
    sentencepiece.set_random_generator_seed(seed)
    output = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=output,
            model_type="unigram",
            vocab_size=plain_size,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            normalization_rule_name="nmt_nfkc",
            byte_fallback=byte_fallback,
            character_coverage=character_coverage,
            required_chars=required_characters,
            input_sentence_size=max_lines,
            shuffle_input_sentence=True,
            num_threads=16,  # a constant: the sums of another number round differently
            minloglevel=0 if verbose else 2,
        )
    except RuntimeError as error:
        raise ValueError(_explain(str(error), size)) from error
    model = proto.ModelProto.FromString(output.getvalue())
    proto.append_sentinels(model)
    return model


def _explain(error: str, size: int) -> str:
    """SentencePiece's error as one sentence about `--size` and `--corpus`."""
    if match := re.search(r"<= (\d+)", error):
        largest = (int(match[1]) + proto.NUM_SENTINELS) // SIZE_MULTIPLE * SIZE_MULTIPLE
        if largest < 2 * SIZE_MULTIPLE:
            return "the corpus is too small for a vocabulary of any size: give more text"
        return (
            f"--size {size} is too large for this corpus: the largest possible is "
            f"--size {largest}, or give more text"
        )
    if match := re.search(r"required_chars\. \d+ vs (\d+)", error):
        needed = int(match[1]) + proto.NUM_SENTINELS
        least = -(-needed // SIZE_MULTIPLE) * SIZE_MULTIPLE
        return (
            f"--size {size} is too small for this corpus: its characters and the sentinels alone "
            f"need {needed} pieces; set --size {least} or more, or a lower --character_coverage"
        )
    if "sentences_.empty()" in error:
        return "the corpus holds no text: every document is empty, null or not a string"
    return f"SentencePiece could not train: {error}"


def show_progress(lines: Iterable[str], counts: corpus.Counts) -> Iterator[str]:
    """Passes `lines` on and tells on stderr, every other second, how far the reading is."""
    start = told = time.monotonic()
    end = "\r" if sys.stderr.isatty() else "\n"
    for line in lines:
        yield line
        now = time.monotonic()
        if now - told >= (0.5 if end == "\r" else 10):
            told = now
            print(_state(counts, now - start), end=end, file=sys.stderr, flush=True)
    print(_state(counts, time.monotonic() - start), file=sys.stderr)
    if counts.skipped:
        print(f"skipped {counts.skipped:,} empty, null or non-text documents", file=sys.stderr)
    print("fitting the pieces (minutes for gigabytes) ...", file=sys.stderr, flush=True)


def _state(counts: corpus.Counts, seconds: float) -> str:
    megabytes = counts.bytes / 1e6
    return (
        f"read {counts.documents:,} documents, {counts.lines:,} lines, {megabytes:,.1f} MB "
        f"in {seconds:.0f} s"
    )


def _check_out(path: str, overwrite: bool) -> None:
    if not path.endswith(".model"):
        raise ValueError(f"--out {path} must end in .model")
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise ValueError(f"--out {path} cannot be written: no permission for {folder}")
    if os.path.exists(path) and not overwrite:
        raise ValueError(
            f"--out {path} exists, and models trained with it need it as it is: "
            "give another name, or --overwrite"
        )


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m vocabulary.train", description="Train a SentencePiece vocabulary."
    )
    add = parser.add_argument
    add("--corpus", required=True, help="glob of files, http(s) file, or Hugging Face hub name")
    add("--column", default="text", help="the column that holds the text")
    add("--config", help="configuration of a hub corpus")
    add("--split", default="train", help="split of a hub corpus")
    add("--max_documents", type=int, help="read no more than so many documents")
    add("--size", type=int, required=True, help="pieces in all, sentinels included")
    add("--out", required=True, help="the model's path; the .vocab listing goes beside it")
    add("--keep_cedilla", action="store_true", help="leave ş ţ as they are (Turkish means them)")
    add("--byte_fallback", action="store_true", help="bytes in place of <unk>, as in mT5")
    add("--character_coverage", type=float, default=0.9999)
    add("--max_lines", type=int, default=5_000_000, help="lines kept, sampled evenly")
    add("--seed", type=int, default=0, help="seed of that sample")
    add("--overwrite", action="store_true", help="replace an existing --out")
    add("--verbose", action="store_true", help="show SentencePiece's own log")
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> list[Finding]:
    """Trains, writes and checks what `args` ask for; returns the check's findings."""
    check_size(args.size)
    _check_out(args.out, args.overwrite)
    documents = corpus.read_documents(
        args.corpus,
        column=args.column,
        config=args.config,
        split=args.split,
        max_documents=args.max_documents,
    )
    counts = corpus.Counts()
    lines = corpus.read_lines(documents, counts, cedilla=not args.keep_cedilla)
    start = time.monotonic()
    model = train_vocabulary(
        show_progress(lines, counts),
        args.size,
        byte_fallback=args.byte_fallback,
        character_coverage=args.character_coverage,
        max_lines=args.max_lines,
        seed=args.seed,
        verbose=args.verbose,
    )
    proto.write_model(model, args.out)
    print(f"wrote {args.out}: {len(model.pieces):,} pieces in {time.monotonic() - start:.0f} s")
    return check_vocabulary(args.out, args.size)


def main(argv: list[str] | None = None) -> None:
    """The command; a user's mistake ends in one sentence and exit code 1."""
    try:
        findings = run(_arguments(argv))
    except ValueError as error:
        sys.exit(f"vocabulary.train: {error}")
    print(table(findings))
    if not passed(findings):
        sys.exit(1)


if __name__ == "__main__":
    main()
