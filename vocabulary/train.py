"""Train a vocabulary on streamed text: SentencePiece for T5, WordPiece or BPE for encoders.

    python -m vocabulary.train --corpus 'corpus/*.jsonl' --size 64000 --out ro.model
    python -m vocabulary.train --corpus owner/name --config ro --split train --column text \\
        --max_documents 2000000 --size 64000 --out ro.model
    python -m vocabulary.train --kind wordpiece --corpus owner/name --size 32000 --out my_bert

SentencePiece's is a unigram model (https://arxiv.org/abs/1808.06226) with T5's normalization
(nmt_nfkc), pad 0, eos 1, unk 2, no bos, and the 100 sentinels as its last pieces; `--size` counts
all of them. `--kind wordpiece` and `--kind byte_bpe` write a folder with a `tokenizer.json` and the
special tokens of BERT, RoBERTa or ModernBERT (`vocabulary.tokenizer_training`). The same text and
settings give the same files, byte for byte.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from command_line import quiet

    quiet.start()

import argparse
import collections
import io
import itertools
import os
import re
import string
import sys
import time
from collections.abc import Iterable, Iterator

import sentencepiece

from command_line import arguments
from vocabulary import cli, corpus, tokenizer_training
from vocabulary import sentencepiece_model as spm
from vocabulary.check import check_any
from vocabulary.check_results import VocabularyCheck
from vocabulary.coverage import BESIDE_HELP, coverage, joiners_of

# These become pieces however rare they are: a vocabulary without a capital Q or a Ț would always
# encode it as <unk>.
REQUIRED_CHARACTERS = (
    string.ascii_letters + string.digits + string.punctuation + "ăâîșțĂÂÎȘȚ„”«»–—’"
)
# Those of the language are looked for in so many lines.
_LINES_FOR_LETTERS, _OFTEN = 100_000, 20
_LINES_FOR_REPORT = 20_000
_FIRST_MARK = 0xF200C  # for private use
_OPTIONS = ("byte_fallback", "character_coverage", "max_lines", "seed", "verbose")


def check_size(size: int) -> None:
    """Raise ValueError unless `size` is a multiple of 128 with space for more than sentinels."""
    if size % spm.SIZE_MULTIPLE or size < 2 * spm.SIZE_MULTIPLE:
        below = max(size // spm.SIZE_MULTIPLE, 2) * spm.SIZE_MULTIPLE
        raise ValueError(
            f"--size {size} is not a multiple of {spm.SIZE_MULTIPLE} from {2 * spm.SIZE_MULTIPLE} "
            "up, which accelerators and model parallelism need for an embedding: "
            f"set --size {below} or {below + spm.SIZE_MULTIPLE}"
        )


def train_vocabulary(
    lines: Iterable[str],
    size: int,
    *,
    byte_fallback: bool = False,
    character_coverage: float = 0.9999,
    required_characters: str = REQUIRED_CHARACTERS,
    joiners: str = "",
    max_lines: int = 5_000_000,
    seed: int = 0,
    verbose: bool = False,
) -> spm.ModelProto:
    """Train a unigram model of exactly `size` pieces (a multiple of 128), sentinels included.

    `lines` are normalized text; SentencePiece drops those above 4,192 bytes. A uniform sample of
    `max_lines`, drawn with `seed`, is kept in memory (about 30 bytes a character while fitting).
    `character_coverage` is the share of its characters that become pieces, `required_characters`
    become pieces even if they are rare, and `byte_fallback` adds 256 byte pieces instead of <unk>.
    `joiners` are pieces too, and the model's normalization leaves them as they are.
    Raise ValueError for a wrong size and for a text too small or too varied for it.
    """
    check_size(size)
    sentencepiece.set_random_generator_seed(seed)
    # Others while training, since SentencePiece's own rules would lose them.
    marks = {ord(joiner): chr(_FIRST_MARK + i) for i, joiner in enumerate(joiners)}
    if marks:
        lines = (line.translate(marks) for line in lines)
    output = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=output,
            model_type="unigram",
            vocab_size=size - spm.NUM_SENTINELS,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            normalization_rule_name="nmt_nfkc",
            byte_fallback=byte_fallback,
            character_coverage=character_coverage,
            required_chars=required_characters + "".join(marks.values()),
            input_sentence_size=max_lines,
            shuffle_input_sentence=True,
            num_threads=16,  # constant: another number of threads sums in another order
            minloglevel=0 if verbose else 2,
        )
    except RuntimeError as error:
        raise ValueError(_explain(str(error), size)) from error
    model = spm.ModelProto.FromString(output.getvalue())
    for joiner, mark in marks.items():
        spm.keep_character(model, chr(joiner))
        for piece in model.pieces:
            piece.piece = piece.piece.replace(mark, chr(joiner))
    spm.append_sentinels(model)
    return model


def letters_of(lines: Iterable[str], size: int) -> str:
    """Return the letters of a language, each in lower and upper case, sorted.

    These are the letters that occur `_OFTEN` times or more in `lines`, at most one for every
    sixteen pieces of a vocabulary of `size`, the most frequent first.
    """
    counts = collections.Counter(c for line in lines for c in line if c.isalpha())
    often = [c for c, n in counts.most_common(size // 16) if n >= _OFTEN]
    cases = {case for c in often for case in (c, c.lower(), c.upper()) if len(case) == 1}
    return "".join(sorted(cases - {*REQUIRED_CHARACTERS}))


def _explain(error: str, size: int) -> str:
    """Return SentencePiece's error as one sentence about `--size` and `--corpus`."""
    if match := re.search(r"<= (\d+)", error):
        return tokenizer_training.too_large(size, int(match[1]) + spm.NUM_SENTINELS)
    if match := re.search(r"required_chars\. \d+ vs (\d+)", error):
        needed = int(match[1]) + spm.NUM_SENTINELS
        return tokenizer_training.too_small(size, needed, "sentinels")
    if "sentences_.empty()" in error:
        return tokenizer_training.NO_TEXT
    return f"SentencePiece could not train: {error}"


def show_progress(lines: Iterable[str], counts: corpus.TextCounts) -> Iterator[str]:
    """Yield `lines`, report on stderr how much has been read, and last that fitting begins."""
    yield from cli.show_progress(lines, counts)
    print("fitting the pieces (minutes for gigabytes) ...", file=sys.stderr, flush=True)


def _check_out(path: str, kind: str, overwrite: bool) -> None:
    is_model = path.endswith(".model")
    if is_model != (kind == "sentencepiece"):
        wanted = "must be a folder, not end in .model" if is_model else "must end in .model"
        raise ValueError(f"--out {path} {wanted}, for --kind {kind}")
    folder = os.path.dirname(path) or "." if is_model else path
    arguments.check_output_folder("--out", folder)
    os.makedirs(folder, exist_ok=True)
    made = path if is_model else os.path.join(path, "tokenizer.json")
    if os.path.exists(made) and not overwrite:
        raise ValueError(
            f"--out {path} exists, and models trained with it need it unchanged: "
            "give another name, or --overwrite"
        )


def _check_options(args: argparse.Namespace) -> None:
    """Raise ValueError for an option that the kind does not have."""
    if args.kind != "sentencepiece" and args.byte_fallback:
        raise ValueError(
            f"--byte_fallback is for --kind sentencepiece, and --kind is {args.kind}: leave it "
            "out; byte_bpe spells every text"
        )
    if args.kind == "sentencepiece" and args.special_tokens:
        raise ValueError(
            f"--special_tokens is {args.special_tokens}, but --kind sentencepiece has T5's: leave "
            "it out, or set --kind wordpiece or byte_bpe"
        )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add, number = parser.add_argument, arguments.integer(1)
    add("--corpus", type=arguments.text, required=True, help=cli.CORPUS_HELP)
    cli.add_corpus_arguments(parser)
    kinds = ("sentencepiece", *tokenizer_training.KINDS)
    about = "sentencepiece for T5 (default); wordpiece or byte_bpe for an encoder"
    add("--kind", choices=kinds, default="sentencepiece", help=about)
    about = "an encoder's; by default bert for wordpiece, roberta for byte_bpe"
    add("--special_tokens", choices=tuple(tokenizer_training.SPECIAL_TOKENS), help=about)
    about = "total number of pieces, sentinels and special tokens included"
    add("--size", type=number, required=True, help=about)
    about = "path of the model, with the .vocab listing beside it; an encoder's folder"
    add("--out", type=arguments.text, required=True, help=about)
    add("--keep_cedilla", action="store_true", help=argparse.SUPPRESS)  # once not the default
    add("--byte_fallback", action="store_true", help="bytes instead of <unk>, as in mT5")
    add("--character_coverage", type=arguments.number(above=0, most=1), default=0.9999)
    add("--max_lines", type=number, default=5_000_000, help="lines kept, sampled uniformly")
    add("--seed", type=arguments.integer(0), default=0, help="seed of that sample")
    add("--overwrite", action="store_true", help="replace an existing --out")
    add("--beside", type=arguments.text, help=BESIDE_HELP)
    add("--verbose", action="store_true", help="show the trainer's own log")


def run(args: argparse.Namespace) -> list[VocabularyCheck]:
    """Train, write and check the vocabulary."""
    check_size(args.size)
    _check_options(args)
    _check_out(args.out, args.kind, args.overwrite)
    counts = corpus.TextCounts()
    lines = show_progress(cli.read_lines(args, counts, sample=True), counts)
    first = list(itertools.islice(lines, _LINES_FOR_LETTERS))
    required = REQUIRED_CHARACTERS + letters_of(first, args.size)
    lines = itertools.chain(first, lines)
    start = time.monotonic()
    if args.kind == "sentencepiece":
        options = {name: getattr(args, name) for name in _OPTIONS}
        options |= {"required_characters": required, "joiners": joiners_of(first)}
        model = train_vocabulary(lines, args.size, **options)
        spm.write_model(model, args.out)
    else:
        _train_tokenizer(args, lines, required)
    print(f"wrote {args.out}: {args.size:,} pieces in {time.monotonic() - start:.0f} s")
    covered: list[VocabularyCheck] = []
    if args.kind == "sentencepiece":
        covered = coverage(args.out, first[:_LINES_FOR_REPORT], args.beside)
    return [*check_any(args.out, args.size), *covered]


def _train_tokenizer(args: argparse.Namespace, lines: Iterable[str], required: str) -> None:
    name = args.special_tokens or tokenizer_training.DEFAULT_SPECIAL_TOKENS[args.kind]
    special = tokenizer_training.SPECIAL_TOKENS[name]
    tokenizer = tokenizer_training.train_tokenizer(
        tokenizer_training.sample_lines(lines, args.max_lines, args.seed),
        args.kind,
        args.size,
        special_tokens=special,
        character_coverage=args.character_coverage,
        required_characters=required,
        verbose=args.verbose,
    )
    tokenizer_training.write_folder(tokenizer, args.out, special)


main = cli.command("train", "Train a vocabulary.", _add_arguments, run)

if __name__ == "__main__":
    main()
