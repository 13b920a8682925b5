"""Asks a model for hidden text: how probable it finds it, and whether it would write it.

    guesser = ModelGuesser("span_corruption", encoder, scorer.score)
    guesser.guess([hidden_text])               # [Guess(log_prob=-7.1, is_written=False)]

| objective | how a model is asked | a sentence is hidden |
|---|---|---|
| span_corruption | a T5 writes each span after its sentinel, and then an end | by halves |
| prefix_lm | a T5 writes the whole text from nothing; it may stop anywhere | as a whole |
| masked_lm | an encoder guesses each piece from masks, span by span from left to right | by words |

Only prefix_lm gives a sentence a probability as such. The others multiply those of its parts: a
pseudo-likelihood (Salazar et al. 2020, arXiv:1910.14659), in which the pieces of a word do not see
those after them (Kauf and Ivanova 2023, arXiv:2305.10588).
"""

import abc
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from common.errors import UserError
from evaluation.hidden_text import HiddenText, hide_spans
from evaluation.scorer import EncodedExample, Guess, MaskedExample
from evaluation.text_encoder import TextEncoder

SPAN_CORRUPTION, PREFIX_LM, MASKED_LM = "span_corruption", "prefix_lm", "masked_lm"


class Guesser(abc.ABC):
    """Gives hidden text a probability; `fills_in` says whether it also reads what follows."""

    fills_in = True

    def hide(self, words: Sequence[str], rng: np.random.Generator) -> HiddenText:
        """Return a passage whose hidden text bits per byte are measured on: 15 %, or all."""
        return hide_spans(words, rng) if self.fills_in else hide_whole(words)[0]

    def hide_in_turn(self, words: Sequence[str]) -> list[HiddenText]:
        """Return a text for each part of a sentence, with that part hidden.

        The product of their probabilities is the score of the sentence.
        """
        return hide_whole(words)

    @abc.abstractmethod
    def guess(self, texts: Sequence[HiddenText]) -> list[Guess]:
        """Return a guess of each text."""

    @abc.abstractmethod
    def unknown(self, texts: Sequence[HiddenText]) -> tuple[int, int]:
        """Return how many hidden pieces the vocabulary does not have, and how many there are.

        Their text costs a model less than it should.
        """


class ModelGuesser(Guesser):
    """A trained model: its objective, its vocabulary, and what scores examples."""

    def __init__(
        self,
        objective: str,
        encoder: TextEncoder,
        score: Callable[[Sequence[Any]], list[Guess]],
    ):
        self._objective, self._encoder, self._score = _OBJECTIVES[objective], encoder, score
        self.fills_in = objective != PREFIX_LM

    def hide_in_turn(self, words: Sequence[str]) -> list[HiddenText]:
        """Return the texts in which the objective hides the parts of a sentence."""
        return self._objective.hide_in_turn(words)

    def guess(self, texts: Sequence[HiddenText]) -> list[Guess]:
        """Return a guess of each text, from all of its examples."""
        examples = [self._objective.examples(text, self._encoder) for text in texts]
        scores = iter(self._score([*itertools.chain.from_iterable(examples)]))
        return [_product([next(scores) for _ in parts]) for parts in examples]

    def unknown(self, texts: Sequence[HiddenText]) -> tuple[int, int]:
        """Return how many hidden pieces are unknown, and how many there are."""
        pieces = [i for text in texts for ids in self._encoder.encode(text.hidden) for i in ids]
        return sum(i == self._encoder.unk_id for i in pieces), len(pieces)


def _product(guesses: Sequence[Guess]) -> Guess:
    log_prob = sum(guess.log_prob for guess in guesses)
    return Guess(log_prob, all(guess.is_written for guess in guesses))


def hide_whole(words: Sequence[str]) -> list[HiddenText]:
    """Return one text, in which all words are hidden."""
    return [HiddenText(tuple(words), ((0, len(words)),))]


def hide_halves(words: Sequence[str]) -> list[HiddenText]:
    """Return a text for each half of the words, with that half hidden; one word is one text."""
    middle = len(words) // 2
    spans = [(0, middle), (middle, len(words))] if middle else [(0, len(words))]
    return [HiddenText(tuple(words), (span,)) for span in spans]


def hide_single_words(words: Sequence[str]) -> list[HiddenText]:
    """Return a text for each word, with that word hidden."""
    return [HiddenText(tuple(words), ((i, i + 1),)) for i in range(len(words))]


def span_examples(text: HiddenText, encoder: TextEncoder) -> list[EncodedExample]:
    """Return one example: each span is a sentinel in the input, and follows it in the target.

    The first sentinel of a target is given, and the end of each span is guessed. After the last
    span the next sentinel or the eos may follow, as pretraining has both. Greedy decoding may also
    begin another word there, since the model is not told how many words are hidden.

    Raises:
      UserError: the vocabulary has fewer sentinels than there are spans.
    """
    if len(text.spans) > len(encoder.sentinels):
        raise UserError(
            why=f"a passage has {len(text.spans)} hidden spans and the vocabulary only "
            f"{len(encoder.sentinels)} sentinels",
            to_set="set --max_chars to less",
        )
    parts = text.parts()
    pieces = encoder.encode([part for part, _ in parts])
    inputs: list[int] = []
    targets: list[int] = []
    sentinels = iter(encoder.sentinels)
    for ids, (_, is_hidden) in zip(pieces, parts, strict=True):
        if is_hidden:
            sentinel = next(sentinels)
            targets += [sentinel, *ids]
        inputs += [sentinel] if is_hidden else ids
    ends = (encoder.eos_id, *encoder.sentinels[len(text.spans) :][:1])
    stops = {*ends} | encoder.word_starts
    return [EncodedExample([*inputs, encoder.eos_id], targets, 1, ends, frozenset(stops))]


def prefix_examples(text: HiddenText, encoder: TextEncoder) -> list[EncodedExample]:
    """Return one example, of a text that is hidden from end to end."""
    return [EncodedExample([encoder.eos_id], encoder.encode(text.hidden)[0])]


def masked_examples(text: HiddenText, encoder: TextEncoder) -> list[MaskedExample]:
    """Return what is guessed in one round after the other: the n-th pieces of all spans.

    A mask hides one piece, so an encoder is told the number of pieces. Pieces that were guessed are
    in their places.
    """
    assert encoder.mask is not None
    parts = text.parts()
    ids, spans = [*encoder.before], []
    pieces = encoder.encode([part for part, _ in parts])
    for part, (_, is_hidden) in zip(pieces, parts, strict=True):
        if is_hidden:
            spans.append(range(len(ids), len(ids) + len(part)))
        ids += part
    ids += encoder.after
    examples = []
    for done in range(max(map(len, spans))):
        masked = {place for span in spans for place in span[done:]}
        places = [span[done] for span in spans if len(span) > done]
        visible = [encoder.mask if i in masked else piece for i, piece in enumerate(ids)]
        examples.append(MaskedExample(visible, places, [ids[place] for place in places]))
    return examples


class _Objective(NamedTuple):
    """How a text becomes examples of a scorer, and how a sentence is hidden."""

    examples: Callable[[HiddenText, TextEncoder], Sequence[EncodedExample | MaskedExample]]
    hide_in_turn: Callable[[Sequence[str]], list[HiddenText]]


_OBJECTIVES = {
    SPAN_CORRUPTION: _Objective(span_examples, hide_halves),
    PREFIX_LM: _Objective(prefix_examples, hide_whole),
    MASKED_LM: _Objective(masked_examples, hide_single_words),
}
