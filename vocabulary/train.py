"""Train a vocabulary on streamed text: SentencePiece for T5, WordPiece or BPE for encoders.

    python -m vocabulary.train --corpus 'corpus/*.jsonl' --size 64000 --out vocabularies/ro.model
    python -m vocabulary.train --corpus owner/name --config ro --split train --column text \\
        --max_documents 2000000 --size 64000 --out vocabularies/ro.model
    python -m vocabulary.train --kind wordpiece --corpus user/name --size 32000 \\
        --out vocabularies/my_bert

SentencePiece's is a unigram model (https://arxiv.org/abs/1808.06226) with T5's normalization
(nmt_nfkc), pad 0, eos 1, unk 2, no bos, and the 100 sentinels as its last pieces; `--size` counts
all of them. `--kind wordpiece` and `--kind byte_bpe` write a folder with a `tokenizer.json` and the
special tokens of BERT, RoBERTa or ModernBERT (`vocabulary.tokenizer_training`). A line that the
corpus repeats counts once: SentencePiece needs hours for long texts that it meets again and again,
such as licences and menus. The same text and settings give the same files, byte for byte.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import argparse
import collections
import contextlib
import io
import os
import re
import string
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

import sentencepiece

from common import arguments, tables
from common.embedding import ROW_MULTIPLE
from common.errors import ROOT, UserError, guarded
from common.new_files import OVERWRITE_HELP, check_new, commit_command
from common.waiting import waiting
from convert.formats.sentencepiece_model import (
    NUM_SENTINELS,
    ModelProto,
    append_sentinels,
    keep_character,
    write_model,
)
from tasks.text.normalize import is_letter
from vocabulary import corpus, tokenizer_training
from vocabulary.check import check_vocabulary
from vocabulary.coverage import BESIDE_HELP, JOINER, coverage, writes_joiners
from vocabulary.tokenizer_training import COVERAGE

# These become pieces however rare they are: a vocabulary without a capital Q or a Ț would always
# encode it as <unk>.
REQUIRED_CHARACTERS = (
    string.ascii_letters + string.digits + string.punctuation + "ăâîșțĂÂÎȘȚ„”«»–—’"
)
# Those of the language are looked for in so many lines, drawn from all.
_LINES_FOR_LETTERS, _OFTEN = 100_000, 20
_LINES_FOR_REPORT = 20_000
_REPORT_SECONDS = 10
# The longest text that SentencePiece gets. At 2**31 characters it aborts the process, after it has
# read them, and counts both ends of a line and what its normalization spells out, such as "…".
MOST_CHARACTERS = 2_000_000_000
# In the joiner's place while training, since SentencePiece's own rules would lose it.
_MARK = "\U000f200c"


def check_size(size: int) -> None:
    """Raise UserError unless `size` is a multiple of 128 with space for more than sentinels."""
    if size % ROW_MULTIPLE or size < 2 * ROW_MULTIPLE:
        below = max(size // ROW_MULTIPLE, 2) * ROW_MULTIPLE
        raise UserError(
            "--size",
            size,
            f"but must be a multiple of {ROW_MULTIPLE} from {2 * ROW_MULTIPLE} up, "
            "as accelerators and model parallelism need for an embedding",
            f"set --size {below} or {below + ROW_MULTIPLE}",
        )


def train_vocabulary(
    lines: Iterable[str],
    size: int,
    *,
    byte_fallback: bool = False,
    character_coverage: float = COVERAGE,
    required_characters: str = REQUIRED_CHARACTERS,
    joiner: bool = False,
) -> ModelProto:
    """Train a unigram model of exactly `size` pieces (a multiple of 128), sentinels included.

    `lines` are normalized text, of at most MOST_CHARACTERS; SentencePiece drops lines above 4,192
    bytes. It keeps all in memory (about 30 bytes a character while fitting).
    `character_coverage` is the share of its characters that become pieces, `required_characters`
    become pieces even if they are rare, and `byte_fallback` adds 256 byte pieces instead of <unk>.
    With `joiner` the zero-width non-joiner is a piece too, which the model does not normalize away.
    Raise UserError for a wrong size and for a text too small or too varied for it.
    """
    check_size(size)
    sentencepiece.set_random_generator_seed(0)
    if joiner:
        lines = (line.replace(JOINER, _MARK) for line in lines)
    output = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=output,
            model_type="unigram",
            vocab_size=size - NUM_SENTINELS,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            normalization_rule_name="nmt_nfkc",
            byte_fallback=byte_fallback,
            character_coverage=character_coverage,
            required_chars=required_characters + (_MARK if joiner else ""),
            num_threads=16,  # constant: another number of threads sums in another order
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explained(str(error), size) from error
    model = ModelProto.FromString(output.getvalue())
    if joiner:
        keep_character(model, JOINER)
        for piece in model.pieces:
            piece.piece = piece.piece.replace(_MARK, JOINER)
    append_sentinels(model)
    return model


def letters_of(lines: Iterable[str], size: int) -> str:
    """Return the letters and marks of a language, each in lower and upper case, sorted.

    These are those that occur `_OFTEN` times or more in `lines`, at most one for every
    sixteen pieces of a vocabulary of `size`, the most frequent first.
    """
    counts = collections.Counter(c for line in lines for c in line if is_letter(c))
    frequent = [c for c, n in counts.most_common(size // 16) if n >= _OFTEN]
    cases = {case for c in frequent for case in (c, c.lower(), c.upper()) if len(case) == 1}
    return "".join(sorted(cases - {*REQUIRED_CHARACTERS}))


@contextlib.contextmanager
def _progress(stage: str) -> Iterator[None]:
    """Report a stage on stderr, and every ten seconds how long it has run."""
    print(stage, file=sys.stderr, flush=True)
    with waiting(stage, _REPORT_SECONDS):
        yield


def _explained(error: str, size: int) -> UserError:
    """Return SentencePiece's error as one about --size and --corpus."""
    if match := re.search(r"<= (\d+)", error):
        return tokenizer_training.too_large(size, int(match[1]) + NUM_SENTINELS)
    if match := re.search(r"required_chars\. \d+ vs (\d+)", error):
        needed = int(match[1]) + NUM_SENTINELS
        return tokenizer_training.too_small(size, needed, "sentinels")
    if "sentences_.empty()" in error:
        return corpus.no_text("the corpus")
    return UserError(why=f"SentencePiece could not train: {error}")


def _check_out(path: str, kind: str, overwrite: bool) -> None:
    is_model = path.endswith(".model")
    if is_model != (kind == "sentencepiece"):
        must = "must be a folder, not end in .model" if is_model else "must end in .model"
        raise UserError("--out", path, f"but {must}, for --kind {kind}")
    arguments.check_output_folder("--out", os.path.dirname(path) or "." if is_model else path)
    if not overwrite:
        check_new([path if is_model else os.path.join(path, "tokenizer.json")], "--out")


def _parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments.parser("python -m vocabulary.train", __doc__)
    add, number = parser.add_argument, arguments.integer(1)
    corpus.add_arguments(parser, required=True)
    kinds = ("sentencepiece", *tokenizer_training.KINDS)
    about = "sentencepiece for T5 (default); wordpiece or byte_bpe for an encoder"
    add("--kind", choices=kinds, default="sentencepiece", help=about)
    about = "an encoder's; by default bert for wordpiece, roberta for byte_bpe"
    add("--special_tokens", choices=tuple(tokenizer_training.SPECIAL_TOKENS), help=about)
    about = "total number of pieces, sentinels and special tokens included"
    add("--size", type=number, required=True, help=about)
    about = "path of the model, with the .vocab listing beside it; an encoder's folder"
    add("--out", type=arguments.text, required=True, help=about)
    add("--byte_fallback", action="store_true", help="bytes instead of <unk>, as in mT5")
    about = f"the share of the text's characters that become pieces, default {COVERAGE}"
    real = arguments.number(above=0, most=1)
    add("--character_coverage", type=real, default=COVERAGE, help=about)
    about = "most lines to keep, drawn from all; repeated ones count once"
    add("--max_lines", type=number, default=5_000_000, help=about)
    add("--overwrite", action="store_true", help=OVERWRITE_HELP)
    add("--beside", type=arguments.text, help=BESIDE_HELP)
    args = parser.parse_args(argv)
    check_size(args.size)
    is_model = args.kind == "sentencepiece"
    if args.special_tokens if is_model else args.byte_fallback:
        flag = "--special_tokens" if is_model else "--byte_fallback"
        raise UserError(flag, why=f"is not for --kind {args.kind}", to_set="leave it out")
    _check_out(args.out, args.kind, args.overwrite)
    return args


@guarded
def main(argv: Sequence[str] | None = None) -> int:
    """Train, write and check the vocabulary, and return the status."""
    args = _parse_arguments(argv)
    start = time.monotonic()
    sample = corpus.sample_lines(corpus.read_lines(args), args.max_lines)
    fewer = corpus.sample_lines(sample, _LINES_FOR_LETTERS)
    settings = {
        "character_coverage": args.character_coverage,
        "required_characters": REQUIRED_CHARACTERS + letters_of(fewer, args.size),
    }
    distinct = list(dict.fromkeys(sample))
    left_out = f"{len(sample) - len(distinct):,} repeated ones are left out"
    if args.kind == "sentencepiece":
        count = len(distinct)
        distinct = corpus.sample_characters(distinct, MOST_CHARACTERS)
        if more := count - len(distinct):
            left_out += f", and {more:,} beyond {MOST_CHARACTERS:,} characters"
    with _progress(f"fitting {args.size:,} pieces to {len(distinct):,} lines ({left_out})"):
        if args.kind == "sentencepiece":
            settings |= {"byte_fallback": args.byte_fallback, "joiner": writes_joiners(fewer)}
            write_model(train_vocabulary(distinct, args.size, **settings), args.out, args.overwrite)
        else:
            name = args.special_tokens or tokenizer_training.DEFAULT_SPECIAL_TOKENS[args.kind]
            special = tokenizer_training.SPECIAL_TOKENS[name]
            tokenizer = tokenizer_training.train_tokenizer(
                distinct, args.kind, args.size, special_tokens=special, **settings
            )
            tokenizer_training.write_folder(tokenizer, args.out, special, args.overwrite)
    print(f"wrote {args.out}: {args.size:,} pieces in {time.monotonic() - start:.0f} s")
    covered = coverage(args.out, corpus.sample_lines(fewer, _LINES_FOR_REPORT), args.beside)
    status = tables.show([*check_vocabulary(args.out, args.size), *covered])
    if os.path.abspath(args.out).startswith(f"{ROOT}/"):
        path = os.path.relpath(args.out, ROOT)
        print(f"The workers of a pod have what is pushed: {commit_command([path])}")
    return status


if __name__ == "__main__":
    sys.exit(main())
