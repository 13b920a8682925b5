"""Add words to a vocabulary; their embeddings start from the mean of their old pieces.

    python -m vocabulary.extend runs/ro --pieces words.txt --out vocabularies/ro_law.model
    python -m vocabulary.extend runs/ro --pieces words.txt --checkpoint runs/ro --out runs/ro_law

Each line of the file is a word, which becomes one piece before the sentinels. `.rows.json` next to
the model has, for every new id, the old ids whose mean is its row. With --checkpoint the checkpoint
is extended too, and both are verified (`vocabulary.checkpoint`).
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import sys
from collections.abc import Sequence

import sentencepiece

from common import arguments, tables
from common.errors import UserError, guarded
from vocabulary import checkpoint
from vocabulary import sentencepiece_model as spm

# Added to a new piece's score for each old piece it saves: it beats them, and of two new pieces
# with the same beginning the longer one wins.
SCORE_BONUS = 0.5


def extend(
    model: spm.ModelProto, words: Sequence[str], extra_ids: int = 0
) -> tuple[spm.ModelProto, spm.Sources]:
    """Return a larger model and, for each of its ids, the old ids from which it starts.

    Words are normalized as the model normalizes text. `extra_ids` is 100 if seqio added the
    sentinels behind the model; they become pieces of it. Raise UserError for a word that is a
    piece already, is given twice, holds an unknown character, or is not one word.
    """
    encoder = spm.processor(model)
    known = {piece.piece for piece in model.pieces}
    added = []
    for word in words:
        piece = _piece_of(encoder, word)
        if piece in known:
            raise UserError(f"the piece {piece!r} exists already or is given twice")
        known.add(piece)
        ids = encoder.encode(_text_of(piece))
        if encoder.unk_id() in ids:
            raise UserError(
                f"the piece {piece!r} holds a character that the model does not know, "
                "so its embedding cannot be initialized"
            )
        score = sum(model.pieces[i].score for i in ids) + SCORE_BONUS * (len(ids) - 1)
        added.append((piece, score, ids))
    sentinels = set(spm.sentinel_ids(model).values())
    kept = [i for i in range(len(model.pieces)) if i not in sentinels]
    return spm.rebuild(model, kept, added, extra_ids)


def _piece_of(encoder: sentencepiece.SentencePieceProcessor, word: str) -> str:
    words = _text_of(encoder.normalize(_text_of(word))).split()
    if len(words) != 1:
        found = f"{len(words)} words" if words else "nothing"
        raise UserError(
            f"the piece {word!r} is {found} to the model, but a piece is of one word; give each "
            "word a line of its own"
        )
    return spm.WORD_START + words[0]


def _text_of(piece: str) -> str:
    return piece.replace(spm.WORD_START, " ")


def never_given(model: spm.ModelProto, count: int) -> list[str]:
    """Return the new pieces, `count` before the sentinels, that their own words lack."""
    encode, end = spm.processor(model).encode, len(model.pieces) - spm.NUM_SENTINELS
    new = {i: model.pieces[i].piece for i in range(end - count, end)}
    return [piece for i, piece in new.items() if i not in encode(_text_of(piece))]


def _read_words(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            words = [line.strip() for line in file if line.strip()]
    except OSError as error:
        raise UserError(
            f"--pieces {path} cannot be read ({error.strerror}): name a file with one word a line"
        ) from error
    if not words:
        raise UserError(f"--pieces {path} holds no word: write one a line")
    return words


@guarded
def main(argv: Sequence[str] | None = None) -> int:
    """Extend, write, check, and return the status."""
    parser = arguments.parser("python -m vocabulary.extend", __doc__)
    checkpoint.add_arguments(parser)
    parser.add_argument("--pieces", required=True, help="a file with one word a line")
    args = parser.parse_args(argv)
    checkpoint.check_out(args)
    model = spm.read_model(spm.find_model(args.model))
    words = _read_words(args.pieces)
    large, sources = extend(model, words, args.extra_ids)
    if unused := never_given(large, len(words)):
        raise UserError(
            f"nothing was written, since the model never gives {', '.join(map(repr, unused))}, "
            "whose rows no text would use: leave them out of the new pieces"
        )
    change = checkpoint.VocabularyChange(model, large, sources, args.extra_ids)
    written, checks = checkpoint.write(change, args, spm.sample_texts(model))
    print(f"wrote {written}: {len(large.pieces):,} pieces, {len(words):,} of them new")
    return tables.show(checks)


if __name__ == "__main__":
    sys.exit(main())
