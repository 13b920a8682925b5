"""Hide tokens in batches of sequences, as BERT does: whole-word masking, 80/10/10.

    masking = Masking(density=0.15, whole_words=True, max_predictions=20)
    inputs, weights = masking.hide(tokens, lengths, facts, 0.15, np.random.default_rng(0))

After Devlin et al. 2019 (BERT, arXiv:1810.04805, section 3.1 and appendix A.1): of the tokens to
predict 80 % become the mask, 10 % a random piece, and 10 % stay. In each sequence the words come in
random order until the share is reached; the word that would exceed it is hidden with the
probability at which the mean is exactly the share, so that long words do not change it. A word that
would exceed the limit of a sequence is left out. Where this hides nothing, as in sequences of a few
tokens, the first word is hidden, as BERT predicts one token at least.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from common.errors import UserError
from tasks.tokenizer_vocabulary import TokenizerVocabulary

# Longer runs (scripts without spaces) are split and count as several words.
LONGEST_WORD = 16


class PieceFacts(NamedTuple):
    """The facts of a vocabulary that masking needs.

    Attributes:
      starts: bool [vocab_size], which ids begin a word.
      special: bool [vocab_size], which ids are special tokens.
      ordinary: int32 [n], the ids that may replace a token.
      mask: the mask's id.
    """

    starts: np.ndarray
    special: np.ndarray
    ordinary: np.ndarray
    mask: int


def piece_facts(vocabulary: TokenizerVocabulary) -> PieceFacts:
    """Return the facts that masking needs of a vocabulary that has a mask token."""
    special = np.zeros([vocabulary.vocab_size], bool)
    special[list(vocabulary.special_ids)] = True
    has_piece = np.array([bool(piece) for piece in vocabulary.pieces])
    ordinary = np.flatnonzero(has_piece & ~special).astype(np.int32)
    assert vocabulary.mask_id is not None, "vocabularies.masking checks it"
    return PieceFacts(vocabulary.word_starts(), special, ordinary, vocabulary.mask_id)


@dataclasses.dataclass(frozen=True)
class Masking:
    """How tokens are hidden.

    Args:
      density: the share of a sequence's tokens, special ones aside, that are to be predicted.
      whole_words: whether all pieces of a word are hidden together.
      max_predictions: the most in a sequence; None for no limit.
      masked: the share of the tokens to predict that become the mask token.
      random: the share of them that become any other piece; the rest stays as it is.

    Raises:
      UserError: a share or number has no meaning.
    """

    density: float = 0.15
    whole_words: bool = True
    max_predictions: int | None = None
    masked: float = 0.8
    random: float = 0.1

    def __post_init__(self):
        if not 0 < self.density < 1:
            raise UserError("masking density", self.density, "but must be between 0 and 1")
        if self.max_predictions is not None and self.max_predictions < 1:
            raise UserError("max_predictions", self.max_predictions, "but must be at least 1")
        shares = (self.masked, self.random)
        if min(shares) < 0 or sum(shares) > 1 + 1e-9:
            raise UserError(
                "the shares of masks and random pieces",
                why=f"are {self.masked} and {self.random}, but must be 0 or more, and at most 1 "
                "together",
            )

    def hide(
        self,
        tokens: np.ndarray,
        lengths: np.ndarray,
        facts: PieceFacts,
        density: float,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the inputs, and where a token is to be predicted, of sequences end to end.

        Args:
          tokens: int32 [T], the ids of all sequences.
          lengths: int [n], of each sequence.
          facts: of the vocabulary.
          density: used instead of this object's.
          rng: the source of all draws.

        Returns:
          int32 [T] with masks, and int32 [T], 1 where a token is to be predicted, else 0.
        """
        inputs, weights = tokens.copy(), np.zeros_like(tokens)
        # One after the other, so that the second changes no draw of the first.
        for chosen in self._choose(tokens, lengths, facts, density, rng):
            places = np.flatnonzero(chosen)
            weights[places] = 1
            draw = rng.random(len(places))
            others = facts.ordinary[rng.integers(len(facts.ordinary), size=len(places))]
            unmasked = np.where(draw < self.masked + self.random, others, tokens[places])
            inputs[places] = np.where(draw < self.masked, facts.mask, unmasked)
        return inputs, weights

    def _choose(
        self,
        tokens: np.ndarray,
        lengths: np.ndarray,
        facts: PieceFacts,
        density: float,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return which tokens are to be predicted, bool [T]: by their share, and where none is."""
        special = facts.special[tokens]
        rows = np.repeat(np.arange(len(lengths)), lengths)
        words = _number_words(tokens, special, rows, facts.starts if self.whole_words else None)
        # The words that may be hidden: their rows, and their sizes in tokens.
        first = np.flatnonzero(np.diff(words, prepend=-1))
        of_text = np.flatnonzero(~special[first])
        size = np.diff(first, append=len(tokens))[of_text]
        row = rows[first][of_text]
        budget = density * np.bincount(row, weights=size, minlength=len(lengths))
        limit = np.inf if self.max_predictions is None else self.max_predictions
        order = np.argsort(row + rng.random(len(row)), kind="stable")
        size, row = size[order], row[order]
        draw = rng.random(len(row))
        fits = np.ones(len(row), bool)
        while True:
            before = _earlier(size * fits, row)
            left = np.minimum(budget, limit)[row] - before
            # A shorter word then takes the place of one that would exceed the limit. Without it
            # fewer tokens than the share would be hidden.
            too_long = fits & (left > 0) & (before + size > limit)
            if not too_long.any():
                break
            fits &= ~too_long
        hidden = fits & (draw * size < left)
        is_hidden, is_added = np.zeros([2, len(first)], bool)
        is_hidden[of_text[order]] = hidden
        # The first word of the others, or as much of it as the limit allows if all exceed it.
        is_bare = np.bincount(row, weights=hidden, minlength=len(lengths)) == 0
        bare = np.flatnonzero(is_bare[row])
        bare = bare[np.lexsort([~fits[bare], row[bare]])]
        is_added[of_text[order][bare[np.unique(row[bare], return_index=True)[1]]]] = True
        within = np.arange(len(tokens)) - first[words] < limit
        return is_hidden[words], is_added[words] & within


BERT_MASKING = Masking()


def _earlier(size: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Return the sum of the sizes of a row's earlier words, int64 [n], where `row` ascends."""
    before = np.cumsum(size) - size
    return before - before[np.searchsorted(row, row)]


def _number_words(
    tokens: np.ndarray, special: np.ndarray, rows: np.ndarray, starts: np.ndarray | None
) -> np.ndarray:
    """Return the number of the word of each token, int64 [T], from 0.

    A special token is a word by itself, and what follows it begins one. Without `starts` every
    token is a word.
    """
    if starts is None:
        return np.arange(len(tokens))
    begins = starts[tokens] | special
    begins[1:] |= special[:-1] | (rows[1:] != rows[:-1])
    begins[:1] = True
    place = np.arange(len(tokens))
    first = np.maximum.accumulate(np.where(begins, place, 0))
    begins |= (place - first) % LONGEST_WORD == 0
    return np.cumsum(begins) - 1
