r"""Trim a vocabulary to the pieces that a corpus uses.

    python -m vocabulary.trim mt5.model --corpus "/data/*.txt" --out vocabularies/ro.model
    python -m convert from_hf google/mt5-base runs/mt5_base
    python -m vocabulary.trim google/mt5-base --corpus 'corpus/*.jsonl' --size 32000 \
      --checkpoint runs/mt5_base --out runs/ro_mt5_base

Most of mT5's weights are embeddings of pieces that any one language never uses. The kept pieces
keep their scores and order, so a text whose pieces are all kept is tokenized as before, and the
kept rows of the embeddings give the same logits. `.rows.json` next to the model has the old id of
every new one. With --checkpoint the checkpoint is trimmed too, and both are verified
(`vocabulary.checkpoint`).

Every line that is read is counted. Words are verified, and both sizes measured, on a sample of
20,000 lines, so that a corpus of any size needs no more memory.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import collections
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from common import arguments, tables
from common.errors import UserError, guarded
from vocabulary import checkpoint, corpus
from vocabulary import sentencepiece_model as spm

PieceCounts: TypeAlias = collections.Counter[int]
_SAMPLED_LINES = 20_000


def count_and_sample(
    model: spm.ModelProto, lines: Iterable[str], most: int
) -> tuple[PieceCounts, list[str]]:
    """Return how often `lines` use each piece id, and a uniform sample of `most` of them."""
    encode = spm.processor(model).encode
    counts: PieceCounts = collections.Counter()

    def counted() -> Iterator[str]:
        for line in lines:
            counts.update(encode(line))
            yield line

    return counts, corpus.sample_lines(counted(), most)


def trim(
    model: spm.ModelProto, usage: PieceCounts, size: int | None = None, extra_ids: int = 0
) -> tuple[spm.ModelProto, spm.Sources]:
    """Return a smaller model and, for each of its ids, the old id.

    `size` counts sentinels. Single characters are kept first, so that every word can still be
    spelled, then the most used pieces. None keeps all used pieces and fills up to the next multiple
    of 128. `extra_ids` is 100 if seqio added the sentinels behind the model; they become pieces.
    Raise UserError for a size that is not a multiple of 128, too small for the required pieces, or
    larger than the model.
    """
    required, optional = _required_pieces(model, usage)
    fixed = len(required) + spm.NUM_SENTINELS
    least = spm.round_up(fixed)
    most = (fixed + len(optional)) // spm.SIZE_MULTIPLE * spm.SIZE_MULTIPLE
    if size is None:
        size = spm.round_up(fixed + sum(usage[i] > 0 for i in optional))
    if size % spm.SIZE_MULTIPLE or not least <= size <= most:
        raise UserError(
            f"--size {size} must be a multiple of {spm.SIZE_MULTIPLE} from {least} "
            f"(specials, characters and sentinels) to {most} (the complete model)"
        )
    optional.sort(key=lambda i: (-usage[i], -model.pieces[i].score, i))
    return spm.rebuild(model, sorted([*required, *optional[: size - fixed]]), [], extra_ids)


def _required_pieces(model: spm.ModelProto, usage: PieceCounts) -> tuple[list[int], list[int]]:
    """Split ids into required (pad, eos, unk, bytes, user-defined, used characters) and others."""
    letters = {letter for i in usage for letter in model.pieces[i].piece}
    sentinels = set(spm.sentinel_ids(model).values())
    required: list[int] = []
    optional: list[int] = []
    for i, piece in enumerate(model.pieces):
        ordinary = piece.type in (spm.SentencePiece.NORMAL, spm.SentencePiece.UNUSED)
        if i not in sentinels:
            (optional if ordinary and piece.piece not in letters else required).append(i)
    return required, optional


def _print_size(name: str, model: spm.ModelProto, extra_ids: int, sample: list[str]) -> None:
    usage, _ = count_and_sample(model, sample, 0)
    unknown = usage[model.trainer_spec.unk_id] / max(usage.total(), 1)
    print(
        f"{name:6} {len(model.pieces) + extra_ids:>9,} pieces, {usage.total():,} ids for "
        f"{len(sample):,} lines, {unknown:.3%} unknown"
    )


@guarded
def main(argv: Sequence[str] | None = None) -> int:
    """Trim, write, print both sizes, check, and return the status."""
    parser = arguments.parser("python -m vocabulary.trim", __doc__)
    checkpoint.add_arguments(parser)
    corpus.add_arguments(parser, required=True)
    about = "pieces to keep (default: all used pieces)"
    parser.add_argument("--size", type=arguments.integer(1), help=about)
    args = parser.parse_args(argv)
    checkpoint.check_out(args)
    model = spm.read_model(spm.find_model(args.model))
    usage, sample = count_and_sample(model, corpus.read_lines(args), _SAMPLED_LINES)
    small, sources = trim(model, usage, args.size, args.extra_ids)
    change = checkpoint.VocabularyChange(model, small, sources, args.extra_ids)
    _, checks = checkpoint.write(change, args, sample)
    _print_size("before", model, args.extra_ids, sample)
    _print_size("after", small, 0, sample)
    return tables.show(checks)


if __name__ == "__main__":
    sys.exit(main())
