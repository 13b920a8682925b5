"""Add pieces to a vocabulary; their embeddings start from the mean of their old pieces.

    python -m vocabulary.extend runs/ro --pieces words.txt --out vocabularies/ro_law.model
    python -m vocabulary.extend runs/ro --pieces words.txt --checkpoint runs/ro --out runs/ro_law
    python -m vocabulary.extend runs/xlm_r --corpus 'georgian/*.jsonl' --size 8000 \
      --checkpoint runs/xlm_r --out runs/ka_xlm_r

Each line of --pieces is a word, which becomes one piece. With a corpus the pieces are learned:
characters that the vocabulary lacks first, then, as in BPE, the most frequent pair of neighbouring
pieces within words becomes a piece, again and again. So each new piece is made of old ones, and
beats them (`vocabulary.pieces`, `vocabulary.tokenizer_json`). Where that would give less than a
tenth more bytes a piece, only what is lacking is added: the vocabulary holds the language well. The
zero-width non-joiner becomes a piece of a T5 if the text writes it. With several
tasks (`--task`) the pieces come from the first one; the others are measured.

`.rows.json` next to the model has, for every new id, the old ids whose mean is its row. With
--checkpoint the checkpoint is extended too, and both are verified (`vocabulary.checkpoint`).
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import collections
import functools
import json
import sys
from collections.abc import Sequence

import tokenizers

from common import arguments
from common.errors import UserError, guarded
from convert.formats.sentencepiece_model import BLANK
from vocabulary import checkpoint, corpus
from vocabulary.coverage import JOINER, writes_joiners
from vocabulary.pieces import NewPiece, Pieces, SentencePieces, VocabularyChange

_SAMPLED_LINES = 200_000  # number of lines that pieces are learned from
_OFTEN = 10  # times at least that a character or pair is in them
_GAIN = 1.1  # least growth of bytes a piece for which pieces are added
_PRIVATE = 0x10000  # Unicode's planes from here on have no blanks


def learn(pieces: Pieces, lines: Sequence[str], size: int) -> VocabularyChange:
    """Return the change to a vocabulary with at most `size` more pieces, learned from lines.

    Twice as many are learned, and those that the lines then use most stay: many pieces are only
    steps on the way to a longer one.
    """
    lacking = characters(pieces, lines)[:size]
    spelled = pieces.change(added=lacking)
    merges = _merges(spelled.new, lines, 2 * (size - len(lacking)))
    merged = spelled.new.change(added=merges)
    full = merged.new
    kept = {i for i, ids in enumerate(merged.sources) if len(ids) == 1 and full.names[i]}
    usage = collections.Counter(i for line in lines for i in full.encode(line))
    used = kept.union(*(full.parts(i) for i in usage))
    room = min(len(used), len(kept) + size - len(lacking))
    trimmed = full.change(sorted(full.most_used(kept, usage, room)))
    return spelled.followed_by(merged).followed_by(trimmed)


def characters(pieces: Pieces, lines: Sequence[str]) -> list[NewPiece]:
    """Return the frequent characters in lines that a vocabulary lacks, most frequent first.

    A joiner that it reads as a blank is among them if it could keep it; it starts from the blank.
    """
    counts = collections.Counter(c for line in lines for c in pieces.normalize(line))
    frequent = [c for c, n in counts.most_common() if n >= _OFTEN and not c.isspace()]
    added = [NewPiece(c, lacking) for c in frequent if (lacking := pieces.lacks(c))]
    if pieces.may_keep(JOINER) and writes_joiners(lines):
        blank = pieces.names.index(BLANK) if BLANK in pieces.names else pieces.unk_id
        added.insert(0, NewPiece(JOINER, (blank,)))
    return added


def _merges(pieces: Pieces, lines: Sequence[str], count: int) -> list[NewPiece]:
    """Return pieces that join the most frequent pairs of pieces within words, in their order.

    The `tokenizers` library learns them from a text in which each character stands for a piece.
    """
    spell = lambda run: "".join(chr(_PRIVATE + i) for i in run)
    of_word = functools.cache(lambda word: " ".join(map(spell, pieces.runs(word))))
    texts = [" ".join(map(of_word, line.split())) for line in lines]
    alphabet = {*"".join(texts)} - {" "}
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=len(alphabet) + count, min_frequency=_OFTEN, show_progress=False
    )
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator(texts, trainer)
    ids = lambda text: tuple(ord(c) - _PRIVATE for c in text)
    name = lambda text: "".join(pieces.names[i] for i in ids(text))
    merges = json.loads(learner.to_str())["model"]["merges"]
    return [NewPiece(name(a + b), ids(a + b), (name(a), name(b))) for a, b in merges]


def extend(pieces: Pieces, words: Sequence[str]) -> VocabularyChange:
    """Return the change to a vocabulary with a piece for each word, normalized as text is.

    Raises:
      UserError: a word is a piece already, is given twice, holds an unknown character, or is not
        one word; the vocabulary is not a SentencePiece model; or no text would get a word's piece.
    """
    if not isinstance(pieces, SentencePieces):
        raise UserError(
            "--pieces",
            why="needs a SentencePiece model, and this is a tokenizer.json",
            to_set="give --corpus, from which its pieces are learned",
        )
    names = {*pieces.names}
    added = []
    for word in words:
        piece = _piece_of(pieces, word)
        if piece in names:
            raise UserError(f"the piece {piece!r}", why="exists already, or is given twice")
        names.add(piece)
        ids = pieces.encode(_text_of(piece))
        if pieces.unk_id in ids:
            raise UserError(
                f"the piece {piece!r}",
                why="holds a character that the model does not know, so its embedding cannot be "
                "initialized",
            )
        added.append(NewPiece(piece, tuple(ids)))
    change = pieces.change(added=added)
    large = change.new
    new = {i: large.names[i] for i, old in enumerate(change.sources) if len(old) > 1}
    unused = [piece for i, piece in new.items() if i not in large.encode(_text_of(piece))]
    if unused:
        raise UserError(
            why=f"the model never gives {', '.join(map(repr, unused))}, whose rows no text would "
            "use, so nothing was written",
            to_set="leave them out of the new pieces",
        )
    return change


def _piece_of(pieces: Pieces, word: str) -> str:
    words = _text_of(pieces.normalize(_text_of(word))).split()
    if JOINER in word and pieces.may_keep(JOINER):
        raise UserError(
            f"the piece {word!r}",
            why=f"holds U+{ord(JOINER):04X}, which the model reads as a blank",
            to_set="learn pieces by --corpus from a text that writes it, and the model keeps it",
        )
    if len(words) != 1:
        amount = f"{len(words)} words" if words else "nothing"
        raise UserError(
            f"the piece {word!r}",
            why=f"is {amount} to the model, but a piece is one word",
            to_set="give each word a line of its own",
        )
    return BLANK + words[0]


def _text_of(piece: str) -> str:
    return piece.replace(BLANK, " ")


def _read_words(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            words = [line.strip() for line in file if line.strip()]
    except OSError as error:
        raise UserError(
            f"--pieces {path}",
            why=f"cannot be read ({error.strerror})",
            to_set="name a file with one word a line",
        ) from error
    if not words:
        raise UserError(f"--pieces {path}", why="holds no word", to_set="write one a line")
    return words


def _learned(pieces: Pieces, lines: Sequence[str], size: int) -> VocabularyChange:
    """Return the change of `learn`, or one of what is lacking if its pieces gain too little."""
    if not lines:
        raise UserError("the corpus", why="holds no text", to_set="name one of the language to add")
    change = learn(pieces, lines, size)
    before, after = (
        checkpoint.bytes_a_piece(vocabulary, lines) for vocabulary in (pieces, change.new)
    )
    if after >= _GAIN * before:
        return change
    lacking = characters(pieces, lines)[:size]
    print(
        f"{f'{len(lacking):,} characters are' if lacking else 'no piece is'} added: the vocabulary "
        f"holds the language well, {before:.2f} bytes a piece, and "
        f"{len(change.sources) - pieces.size:,} more pieces would make that {after:.2f}"
    )
    return pieces.change(added=lacking)


@guarded
def main(argv: Sequence[str] | None = None) -> int:
    """Extend, write, print the table, and return the status."""
    parser = arguments.parser("python -m vocabulary.extend", __doc__)
    checkpoint.add_arguments(parser)
    corpus.add_arguments(parser, required=False)
    parser.add_argument("--pieces", help="a file with one word a line")
    about = "of a corpus: how many pieces to learn at most"
    parser.add_argument("--size", type=arguments.integer(1), default=8_000, help=about)
    args = parser.parse_args(argv)
    if bool(args.pieces) == bool(args.corpus or args.task):
        raise UserError(
            "--pieces",
            why="gives words to add, --corpus or --task a text to learn them from",
            to_set="give either",
        )
    checkpoint.check_out(args)
    pieces = checkpoint.open_pieces(args)
    if args.pieces:
        change, samples = extend(pieces, _read_words(args.pieces)), {}
    else:
        samples = {
            name: corpus.sample_lines(lines, _SAMPLED_LINES)
            for name, lines in corpus.lines_by_name(args).items()
        }
        change = _learned(pieces, next(iter(samples.values())), args.size)
    return checkpoint.finish(change, args, samples)


if __name__ == "__main__":
    sys.exit(main())
