"""What a model is asked for: hidden text, by whatever way the model can give it a probability.

guesser = SpanGuesser(scorer, encoder)     # of a T5 that fills in spans
guesser.guess([hidden_text])               # [Guess(log_prob=-7.1, is_written=False)]
guesser = MaskGuesser(MaskScorer(module, params), vocabulary, "runs/ro_bert")     # of an encoder

A mask hides one piece, so an encoder is given the number of pieces of hidden text. Each hidden span
is revealed from left to right: its first piece is guessed from masks, the second with the first in
its place, and so on. The product of these is a probability of the text, given the numbers of
pieces. The spans of a text are revealed in parallel: all n-th pieces are guessed independently.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from common.errors import UserError
from evaluation.hidden_text import HiddenText, hide_spans
from evaluation.scorer import EncodedExample, MaskedExample, MaskScorer, Scorer
from evaluation.text_encoder import EOS, TextEncoder, marks_spaces
from tasks.tokenizer_vocabulary import TokenizerVocabulary


class Guess(NamedTuple):
    """The natural logarithm of the probability of hidden text, and whether the model writes it."""

    log_prob: float
    is_written: bool


class Guesser:
    """A model that gives hidden text a probability.

    `fills_in`: it reads what follows the hidden text, too. `_encoder`: its vocabulary.
    """

    fills_in = True
    _encoder: TextEncoder

    def hide(self, words: Sequence[str], rng: np.random.Generator) -> HiddenText:
        """Return a passage with the text hidden that bits per byte are measured of: 15 %."""
        return hide_spans(words, rng)

    def cover(self, words: Sequence[str]) -> list[HiddenText]:
        """Return a sentence with parts hidden whose probabilities multiply to the sentence's."""
        return [HiddenText(tuple(words), ((0, len(words)),))]

    def guess(self, texts: Sequence[HiddenText]) -> list[Guess]:
        """Return a guess of each text."""
        raise NotImplementedError

    def unknown(self, texts: Sequence[HiddenText]) -> tuple[int, int]:
        """Return how many hidden pieces the vocabulary does not have, and how many there are.

        Their text costs a model less than it should.
        """
        pieces = [i for text in texts for ids in self._encoder.encode(text.hidden) for i in ids]
        return sum(i == self._encoder.unk_id for i in pieces), len(pieces)


class SpanGuesser(Guesser):
    """A T5 that was pretrained by span corruption.

    The end of each span counts as part of what is guessed. It gives no probability to a sentence as
    such: each half is hidden once, a pseudo-likelihood (Salazar et al. 2020, arXiv:1910.14659) with
    two masks.
    """

    def __init__(self, scorer: Scorer, encoder: TextEncoder):
        self._scorer, self._encoder = scorer, encoder

    def cover(self, words: Sequence[str]) -> list[HiddenText]:
        """Hide each half once."""
        middle = len(words) // 2
        halves = [(0, middle), (middle, len(words))] if middle else [(0, len(words))]
        return [HiddenText(tuple(words), (half,)) for half in halves]

    def guess(self, texts: Sequence[HiddenText]) -> list[Guess]:
        """Return the guesses; the first sentinel of a target is given.

        Text is written if greedy decoding begins with it, and then ends or begins another word: how
        many words are hidden is not known to the model.
        """
        examples = [span_example(text, self._encoder) for text in texts]
        return [
            Guess(
                float(scores.log_probs[1:].sum()) + scores.end_log_prob,
                scores.is_written({*example.ends} | self._encoder.word_starts),
            )
            for example, scores in zip(examples, self._scorer.score(examples), strict=True)
        ]


def span_example(text: HiddenText, encoder: TextEncoder) -> EncodedExample:
    """Return the ids: each span is a sentinel in the input, and follows it in the target.

    After the last span the next sentinel or the eos may follow, as pretraining has both.

    Raises:
      UserError: the vocabulary has fewer sentinels than there are spans.
    """
    if len(text.spans) > len(encoder.sentinels):
        raise UserError(
            f"a passage has {len(text.spans)} hidden spans and the vocabulary only "
            f"{len(encoder.sentinels)} sentinels: set --max_chars to less"
        )
    parts = text.parts()
    found = encoder.encode([part for part, _ in parts])
    inputs: list[int] = []
    targets: list[int] = []
    sentinels = iter(encoder.sentinels)
    for ids, (_, is_hidden) in zip(found, parts, strict=True):
        if is_hidden:
            sentinel = next(sentinels)
            targets += [sentinel, *ids]
        inputs += [sentinel] if is_hidden else ids
    next_one = encoder.sentinels[len(text.spans) :][:1]
    return EncodedExample([*inputs, EOS], targets, (EOS, *next_one))


class PrefixGuesser(Guesser):
    """A T5 that was pretrained to continue text: it writes each text from nothing."""

    fills_in = False

    def __init__(self, scorer: Scorer, encoder: TextEncoder):
        self._scorer, self._encoder = scorer, encoder

    def hide(self, words: Sequence[str], rng: np.random.Generator) -> HiddenText:
        """Hide all words."""
        return self.cover(words)[0]

    def guess(self, texts: Sequence[HiddenText]) -> list[Guess]:
        """Return the guesses of texts that are hidden from end to end; they may stop anywhere."""
        ids = [self._encoder.encode(text.hidden)[0] for text in texts]
        examples = [EncodedExample([EOS], each, (EOS,)) for each in ids]
        return [
            Guess(float(each.log_probs.sum()), bool(each.is_best.all()))
            for each in self._scorer.score(examples)
        ]


class MaskGuesser(Guesser):
    """A masked language model.

    It gives no probability to a sentence as such: each word is hidden once, a pseudo-likelihood
    whose pieces do not see those behind them in the same word (Kauf and Ivanova 2023,
    arXiv:2305.10588).
    """

    def __init__(self, scorer: MaskScorer, vocabulary: TokenizerVocabulary, owner: str):
        """Raise UserError, with the model's name `owner`, if the tokenizer has no mask."""
        if vocabulary.mask_id is None:
            raise UserError(
                f"{owner} has a tokenizer without a mask token, so no text can be hidden from it: "
                "name its mask_token in tokenizer_config.json"
            )
        self._scorer, self._mask = scorer, vocabulary.mask_id
        self._first, self._last = (
            [] if i is None else [i] for i in (vocabulary.cls_id, vocabulary.sep_id)
        )
        ids_of = lambda text: vocabulary.encode_texts([text])[0].tolist()
        self._encoder = TextEncoder(ids_of, (), vocabulary.unk_id, marks_spaces(ids_of))

    def cover(self, words: Sequence[str]) -> list[HiddenText]:
        """Hide each word once."""
        return [HiddenText(tuple(words), ((i, i + 1),)) for i in range(len(words))]

    def guess(self, texts: Sequence[HiddenText]) -> list[Guess]:
        """Return the guesses; the numbers of pieces are given."""
        rounds = [self.examples(text) for text in texts]
        scores = iter(self._scorer.score([e for each in rounds for e in each]))
        found = []
        for each in rounds:
            parts = [next(scores) for _ in each]
            log_prob = sum(float(log_probs.sum()) for log_probs, _ in parts)
            found.append(Guess(log_prob, all(is_best.all() for _, is_best in parts)))
        return found

    def examples(self, text: HiddenText) -> list[MaskedExample]:
        """Return what is guessed of a text, one round after the other."""
        parts = text.parts()
        ids, spans = [*self._first], []
        for part, (_, is_hidden) in zip(
            self._encoder.encode([part for part, _ in parts]), parts, strict=True
        ):
            if is_hidden:
                spans.append(range(len(ids), len(ids) + len(part)))
            ids += part
        ids += self._last
        found = []
        for done in range(max(map(len, spans))):
            masked = {place for span in spans for place in span[done:]}
            places = [span[done] for span in spans if len(span) > done]
            seen = [self._mask if i in masked else each for i, each in enumerate(ids)]
            found.append(MaskedExample(seen, places, [ids[place] for place in places]))
        return found
