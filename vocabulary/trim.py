r"""Trim a vocabulary to the pieces that a corpus uses, and a checkpoint with it.

    python -m vocabulary.trim mt5.model --corpus "/data/*.txt" --out vocabularies/ro.model
    python -m convert from_hf google/mt5-base runs/mt5_base
    python -m vocabulary.trim google/mt5-base --corpus 'corpus/*.jsonl' --size 32000 \
      --checkpoint runs/mt5_base --out runs/ro_mt5_base
    python -m vocabulary.trim runs/xlm_r --task ka_text ron_text --module tasks.georgian \
      --checkpoint runs/xlm_r --out runs/xlm_r_small

Most of mT5's weights are embeddings of pieces that any one language never uses. The kept pieces
keep their scores and order, so a text whose pieces are all kept is tokenized as before, and the
kept rows of the embeddings give the same logits. `.rows.json` next to the model has the old id of
every new one. With --checkpoint the checkpoint is trimmed too, and both are verified
(`vocabulary.checkpoint`). A tokenizer.json of Unigram or BPE is trimmed in the same way
(`vocabulary.tokenizer_json`).

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

from common import arguments
from common.embedding import ROW_MULTIPLE, padded_rows
from common.errors import UserError, guarded
from vocabulary import checkpoint, corpus
from vocabulary.pieces import Pieces, VocabularyChange

PieceCounts: TypeAlias = collections.Counter[int]


def count_and_sample(
    pieces: Pieces, lines: Iterable[str], most: int
) -> tuple[PieceCounts, list[str]]:
    """Return how often `lines` use each piece id, and a uniform sample of `most` of them."""
    counts: PieceCounts = collections.Counter()

    def counted() -> Iterator[str]:
        for line in lines:
            counts.update(pieces.encode(line))
            yield line

    return counts, corpus.sample_lines(counted(), most)


def trim(pieces: Pieces, usage: PieceCounts, size: int | None = None) -> VocabularyChange:
    """Return the change to a smaller vocabulary.

    `size` counts sentinels. Single characters are kept first, so that every word can still be
    spelled, then the most used pieces, each with those that it is merged from. None keeps all used
    pieces and fills up to the next multiple of 128. Raise UserError for a size that is not a
    multiple of 128, too small for the required pieces, or larger than the vocabulary.
    """
    kept = pieces.required(usage)
    optional = {i for i, name in enumerate(pieces.names) if name} - kept
    fixed = len(kept) + pieces.fixed
    least = padded_rows(fixed)
    most = (fixed + len(optional)) // ROW_MULTIPLE * ROW_MULTIPLE
    if size is None:
        used = kept.union(*(pieces.parts(i) for i in optional if usage[i]))
        size = min(padded_rows(len(used) + pieces.fixed), fixed + len(optional))
    elif size % ROW_MULTIPLE or not least <= size <= most:
        raise UserError(
            "--size",
            size,
            f"but must be a multiple of {ROW_MULTIPLE} from {least} (specials, characters "
            f"and sentinels) to {most} (the complete vocabulary)",
        )
    return pieces.change(sorted(pieces.most_used(kept, usage, size - pieces.fixed)))


@guarded
def main(argv: Sequence[str] | None = None) -> int:
    """Trim, write, print the table, and return the status."""
    parser = arguments.parser("python -m vocabulary.trim", __doc__)
    checkpoint.add_arguments(parser)
    corpus.add_arguments(parser, required=True)
    about = "pieces to keep (default: all used pieces)"
    parser.add_argument("--size", type=arguments.integer(1), help=about)
    args = parser.parse_args(argv)
    checkpoint.check_out(args)
    pieces = checkpoint.open_pieces(args)
    usage: PieceCounts = collections.Counter()
    samples = {}
    for name, lines in corpus.lines_by_name(args).items():
        counts, samples[name] = count_and_sample(pieces, lines, checkpoint.VERIFIED_LINES)
        usage += counts
    return checkpoint.finish(trim(pieces, usage, args.size), args, samples)


if __name__ == "__main__":
    sys.exit(main())
