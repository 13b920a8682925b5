"""Encoders: hidden text as masks, and what a masked language model makes of them.

    guesser = MaskGuesser(MaskScorer(module, params), vocabulary, "runs/ro_bert")
    guesser.guess([hidden_text])

A mask hides one piece, so the number of pieces of hidden text is given. Each hidden span is
revealed from left to right: its first piece is guessed from masks, the second with the first in its
place, and so on. The product of these is a probability of the text, given the numbers of pieces.
The spans of a text are revealed in parallel: all n-th pieces are guessed independently.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.guesser import Guess, Guesser
from evaluation.hidden_text import HiddenText
from evaluation.scorer import in_batches, padded
from evaluation.text_encoder import TextEncoder, marks_spaces
from t5x.examples.encoder import network
from tasks.tokenizer_vocabulary import TokenizerVocabulary


class MaskedExample(NamedTuple):
    """Ids with masks, the places that are guessed, and their ids."""

    ids: list[int]
    places: list[int]
    targets: list[int]


class MaskScorer:
    """A network of `t5x.examples.encoder` with nested float32 `params`."""

    def __init__(self, module: network.Bert | network.ModernBert, params: Any):
        params = jax.tree.map(jnp.asarray, params)
        self._max_length, self._vocab_size = module.config.max_length, module.config.vocab_size

        @jax.jit
        def run(params, ids_BL, segments_BL, places_BP, targets_BP):
            bound = module.bind({"params": params})
            encoded_BLD = bound.encode(ids_BL, segments_BL, enable_dropout=False)
            asked_BPD = jnp.take_along_axis(encoded_BLD, places_BP[..., None], axis=1)
            log_probs = jax.nn.log_softmax(bound.predict(asked_BPD))
            found = jnp.take_along_axis(log_probs, targets_BP[..., None], axis=-1)[..., 0]
            return found, jnp.argmax(log_probs, axis=-1) == targets_BP

        self._run = functools.partial(run, params)

    def score(self, examples: Sequence[MaskedExample]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the logarithms of the targets' probabilities, float32 [P], and bool [P].

        The second says whether no id has more.

        Raises:
          ValueError: an example is longer than the model.
        """
        longest = max((len(each.ids) for each in examples), default=0)
        if longest > self._max_length:
            raise ValueError(
                f"a text has {longest:,} ids, but the model reads at most {self._max_length:,}: "
                "set --max_chars to less"
            )
        rows, sizes = [], []
        for ids, places, targets in examples:
            length = min(padded(len(ids)), self._max_length)
            asked = 1 << (len(places) - 1).bit_length()
            rows.append((ids, [1] * len(ids), places, targets))
            sizes.append((length, length, asked, asked))
        found = in_batches(rows, sizes, self._vocab_size, self._run)
        counts = [len(each.places) for each in examples]
        return [(a[:n], b[:n]) for n, (a, b) in zip(counts, found, strict=True)]


class MaskGuesser(Guesser):
    """A masked language model.

    It gives no probability to a sentence as such: each word is hidden once, a pseudo-likelihood
    whose pieces do not see those behind them in the same word (Kauf and Ivanova 2023,
    arXiv:2305.10588).
    """

    def __init__(self, scorer: MaskScorer, vocabulary: TokenizerVocabulary, owner: str):
        """Raise ValueError, with the model's name `owner`, if the tokenizer has no mask."""
        if vocabulary.mask_id is None:
            raise ValueError(
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
