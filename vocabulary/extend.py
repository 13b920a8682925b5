"""Add pieces to a vocabulary; their embeddings start from the mean of their old pieces.

    python -m vocabulary.extend ro.model --corpus 'law/*.jsonl' --size 66048 --out ro_law.model
    python -m vocabulary.extend ro.model --pieces words.txt --out ro_law.model
    python -m vocabulary.extend runs/ro --pieces words.txt --checkpoint runs/ro --out runs/ro_law

The new pieces are complete words: those that save the corpus most ids, or those in a file (one a
line). They are inserted before the sentinels, which stay last. `.rows.json` beside the model has,
for every new id, the old ids whose mean is its row. With --checkpoint the checkpoint is extended
too, and both are verified (`vocabulary.checkpoint`).
"""

if __name__ == "__main__":  # before any library writes to stderr
    from command_line import quiet

    quiet.start()

import argparse
import collections
import itertools
from collections.abc import Iterable, Sequence

import sentencepiece

from command_line import arguments
from tasks.text.normalize import is_letter
from vocabulary import checkpoint, cli, corpus
from vocabulary import sentencepiece_model as spm
from vocabulary.check_results import VocabularyCheck
from vocabulary.tokenization_equality import sample_texts

# Added to a new piece's score for each old piece it saves: it beats them, and of two new pieces
# with the same beginning the longer one wins.
SCORE_BONUS = 0.5


def best_words(model: spm.ModelProto, lines: Iterable[str], count: int) -> list[str]:
    """Return the `count` words that save most ids; raise ValueError if the corpus has too few."""
    encoder = spm.processor(model)
    words: collections.Counter[str] = collections.Counter()
    for line in lines:
        for word in line.split():
            letters = word if word.isalpha() else "".join(itertools.takewhile(is_letter, word))
            if letters:
                words[letters] += 1
    saved: collections.Counter[str] = collections.Counter()
    for word, number in words.items():
        ids = encoder.encode(word)
        if len(ids) > 1 and encoder.unk_id() not in ids:
            saved["".join(encoder.id_to_piece(ids))] += number * (len(ids) - 1)
    known = {piece.piece for piece in model.pieces}
    best = sorted(saved.keys() - known, key=lambda piece: (-saved[piece], piece))[:count]
    if len(best) < count:
        raise ValueError(
            f"the corpus has only {len(best):,} words of more than one piece, {count:,} are "
            "needed: give more text or a smaller --size"
        )
    return best


def extend(
    model: spm.ModelProto, pieces: Sequence[str], extra_ids: int = 0
) -> tuple[spm.ModelProto, spm.Sources]:
    """Return a larger model and, for each of its ids, the old ids from which it starts.

    New pieces that start a word have ▁ before them; they are normalized as the model normalizes
    text. `extra_ids` is 100 if seqio added the sentinels behind the model; they become pieces of
    it. Raise ValueError for a piece that exists, is given twice, holds an unknown character, or is
    not one word.
    """
    encoder = spm.processor(model)
    known = {piece.piece for piece in model.pieces}
    sentinels = set(spm.sentinel_ids(model).values())
    added = []
    for given in pieces:
        piece = _normalized(encoder, given)
        if piece in known:
            raise ValueError(f"the piece {piece!r} exists already or is given twice")
        known.add(piece)
        ids = _old_ids(encoder, piece)
        score = sum(model.pieces[i].score for i in ids) + SCORE_BONUS * (len(ids) - 1)
        added.append((piece, score, ids))
    kept = [i for i in range(len(model.pieces)) if i not in sentinels]
    return spm.rebuild(model, kept, added, extra_ids)


def _normalized(encoder: sentencepiece.SentencePieceProcessor, piece: str) -> str:
    """Return a piece as the model normalizes text; raise ValueError if that is not one word."""
    start = spm.WORD_START if piece.startswith(spm.WORD_START) else ""
    words = encoder.normalize(piece.removeprefix(start)).replace(spm.WORD_START, " ").split()
    if len(words) != 1:
        found = f"{len(words)} words" if words else "nothing"
        raise ValueError(
            f"the piece {piece!r} is {found} to the model, but a piece is of one word; give each "
            "word a line of its own"
        )
    return start + words[0]


def never_given(model: spm.ModelProto, count: int) -> list[str]:
    """Return those of the `count` new pieces before the sentinels that their own words lack."""
    encode, end = spm.processor(model).encode, len(model.pieces) - spm.NUM_SENTINELS
    new = {i: model.pieces[i].piece for i in range(end - count, end)}
    return [p for i, p in new.items() if i not in encode(p.replace(spm.WORD_START, " "))]


def _old_ids(encoder: sentencepiece.SentencePieceProcessor, piece: str) -> list[int]:
    """Return the old ids of a new piece; one without ▁ is encoded as the rest of a word."""
    ids = encoder.encode(piece.replace(spm.WORD_START, " "))
    starts_word = piece.startswith(spm.WORD_START)
    if ids and not starts_word and encoder.id_to_piece(ids[0]) == spm.WORD_START:
        ids = ids[1:]
    if not ids or encoder.unk_id() in ids:
        raise ValueError(
            f"the piece {piece!r} holds a character that the model does not know, "
            "so its embedding cannot be initialized"
        )
    return ids


def _read_pieces(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            words = [line.strip() for line in file]
    except OSError as error:
        raise ValueError(
            f"--pieces {path} cannot be read ({error.strerror}): name a file with one word a line"
        ) from error
    pieces = [spm.WORD_START + word.removeprefix(spm.WORD_START) for word in words if word]
    if not pieces:
        raise ValueError(f"--pieces {path} holds no word: write one a line")
    return pieces


def _new_pieces(model: spm.ModelProto, args: argparse.Namespace) -> list[str]:
    if args.pieces:
        return _read_pieces(args.pieces)
    now = len(model.pieces) - len(spm.sentinel_ids(model)) + spm.NUM_SENTINELS
    if not args.size or args.size % spm.SIZE_MULTIPLE or args.size <= now:
        raise ValueError(
            f"--size {args.size} must be a multiple of {spm.SIZE_MULTIPLE} above the model's {now}"
        )
    counts = corpus.TextCounts()
    lines = cli.show_progress(cli.read_lines(args, counts, sample=True), counts)
    return best_words(model, lines, args.size - now)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    checkpoint.add_arguments(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--corpus", help="add the words that save most ids of this text")
    source.add_argument("--pieces", help="a file with one word a line")
    cli.add_corpus_arguments(parser)
    about = "with --corpus: total pieces, a multiple of 128"
    parser.add_argument("--size", type=arguments.integer(1), help=about)


def run(args: argparse.Namespace) -> list[VocabularyCheck]:
    """Extend, write and check."""
    checkpoint.check_out(args)
    path = spm.find_model(args.model)
    model = spm.read_model(path)
    pieces = _new_pieces(model, args)
    large, sources = extend(model, pieces, args.extra_ids)
    if unused := never_given(large, len(pieces)):
        raise ValueError(
            f"nothing was written, since the model never gives {', '.join(map(repr, unused))}, "
            "whose rows no text would use: leave them out of the new pieces"
        )
    change = checkpoint.VocabularyChange(model, large, sources, args.extra_ids)
    written, checks = checkpoint.write(change, args, sample_texts(path))
    print(f"wrote {written}: {len(large.pieces):,} pieces, {len(pieces):,} of them new")
    return checks


main = cli.command("extend", "Add pieces to a vocabulary.", _add_arguments, run)

if __name__ == "__main__":
    main()
