"""Masked language modelling, for encoders: predict hidden tokens of a text from both sides.

    MaskedLM()                                           # 15 %, complete words
    MaskedLM(Masking(0.15, max_predictions=20), pairs=True, short=0.1)   # BERT
    MaskedLM(Masking(0.3))                               # ModernBERT; a task for each of its phases

An example over BERT's ids, [CLS] 2, [SEP] 3, [MASK] 4 (10 tokens of text, 2 to predict):

    text               Ana   are  mere  și  pere   ,   dar  nu   are  nuci
    targets        2    11    12    13   14   15   16   17   18   12   19   3
    inputs         2    11    12     4   14   15   16   17   18   12   23   3
    loss_weights   0     0     0     1    0    0    0    0    0    0    1   0

Each is int32 [length], [CLS] and [SEP] included and never hidden. Pairs also have `type_ids`, int32
[length], 1 for the second text, and `next_sentence_label`, int32 [1]: 0 if it follows the first, 1
if it is a random one, as in Hugging Face. TASK_FEATURE_LENGTHS has one length for both inputs and
targets. `tasks.objectives.masking` hides tokens, `tasks.objectives.sequences` cuts the text.

Each epoch has new masks, since they are drawn while the text is read. `tasks.cache --lengths` keeps
some epochs' sequences.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import numpy as np
import seqio
import tensorflow as tf

from common.errors import UserError
from common.source import DEFAULT_READING, Reading
from tasks import vocabularies
from tasks.corpus import tf_callbacks
from tasks.objectives import sequences
from tasks.objectives.base import Lengths, Objective
from tasks.objectives.masking import BERT_MASKING, Masking, piece_facts
from tasks.text import sentence_split
from tasks.text.token_chunks import unbatch
from tasks.text.tokenize import DOCUMENTS_A_CALL, count_pieces
from tasks.tokenizer_vocabulary import TokenizerVocabulary

# A pair's second text is drawn from the documents of one call.
DOCUMENTS_MASKED_A_CALL = 32
_IDS, _SIZES = (tf.TensorSpec([None], dtype) for dtype in (tf.int32, tf.int64))
SENTENCES: Mapping[str, Callable[[str], list[str]]] = {
    "split": sentence_split.split,
    "lines": lambda text: [" ".join(line.split()) for line in text.split("\n") if line.strip()],
    "none": lambda text: [text],
}

PAIR_LABEL, PAIR_LABELS = "next_sentence_label", ("follows", "random")  # a feature, its 0 and 1


@dataclasses.dataclass(frozen=True)
class MaskedLM(Objective):
    """Turns documents into sequences with masks.

    Args:
      masking: what is hidden.
      pairs: whether examples are two texts with a label, as BERT's next-sentence prediction.
      short: the share of sequences that have a random shorter length (BERT: 0.1).
      sentences: where sentences end that are not cut: "split" at line ends and after . ! ? …,
        "lines" at line ends only, "none" to cut anywhere and keep line ends.

    Raises:
      UserError: a setting is unknown, or has no meaning.
    """

    masking: Masking = BERT_MASKING
    pairs: bool = False
    short: float = 0.0
    sentences: str = "split"

    def __post_init__(self):
        if not 0 <= self.short <= 1:
            raise UserError("short", self.short, "but must be a share from 0 to 1")
        if self.sentences not in SENTENCES:
            raise UserError(
                "sentences", self.sentences, f"but must be one of {', '.join(SENTENCES)}"
            )
        if self.pairs and self.sentences == "none":
            why, to_set = "but pairs are made of sentences", "set it to 'split' or 'lines'"
            raise UserError("sentences", self.sentences, why, to_set)

    def vocabulary(self, vocabulary: str | Callable[[], str]) -> seqio.Vocabulary:
        """Return the vocabulary of a tokenizer's folder or file."""
        return vocabularies.tokenizer(vocabulary)

    def features(self, vocabulary: seqio.Vocabulary) -> dict[str, seqio.Feature]:
        """Return the features of an example."""
        ids = seqio.Feature(vocabulary, add_eos=False, dtype=tf.int32)
        marks = seqio.Feature(seqio.PassThroughVocabulary(2), add_eos=False, dtype=tf.int32)
        names = ["loss_weights", *(["type_ids", PAIR_LABEL] if self.pairs else [])]
        return {"inputs": ids, "targets": ids} | dict.fromkeys(names, marks)

    def lengths(self, inputs_length: int, vocabulary: seqio.Vocabulary | None = None) -> Lengths:
        """Return the text that fits next to the special tokens, and the targets' length."""
        special, least = (3, 2) if self.pairs else (2, 1)
        if inputs_length < special + least:
            raise UserError(
                "TASK_FEATURE_LENGTHS['inputs']",
                inputs_length,
                f"which cannot hold text and {special} special tokens",
                f"set it to at least {special + least}",
            )
        return Lengths(inputs_length - special, inputs_length)

    def tokenize(
        self,
        dataset: tf.data.Dataset,
        output_features: Mapping[str, seqio.Feature],
        reading: Reading = DEFAULT_READING,
    ) -> tf.data.Dataset:
        """Turn documents {"text"} into {"targets": int32 [n], "sentences": int32 [k]}.

        `targets` are the ids of all sentences, without special tokens, and `sentences` the number
        of ids in each. Other features are dropped.

        Raises:
          UserError: the vocabulary has no mask token.
        """
        vocabulary = vocabularies.masking(output_features["targets"].vocabulary)
        split = SENTENCES[self.sentences]

        def encode(texts):
            documents = [split(text.decode("utf-8", "replace")) for text in texts]
            # Without the space, byte-level BPE would not see that the sentence begins a word.
            spelled = [
                f" {sentence}" if n else sentence
                for sentences in documents
                for n, sentence in enumerate(sentences)
            ]
            ids, lengths = vocabulary.encode_texts(spelled)
            n = len(documents)
            document = np.repeat(np.arange(n), list(map(len, documents)))
            document, lengths = document[lengths > 0], lengths[lengths > 0]
            counts = np.bincount(document, minlength=n)
            sizes = np.bincount(document, weights=lengths, minlength=n).astype(np.int64)
            return ids, lengths.astype(np.int32), sizes, counts

        count = count_pieces(vocabulary, reading)

        def fn(texts):
            specs = [_IDS, _IDS, _SIZES, _SIZES]
            ids, sentences, sizes, counts = tf_callbacks.call(encode, specs, texts)
            ragged = tf.RaggedTensor.from_row_lengths
            return {
                "targets": ragged(count(ids, texts), sizes, validate=False),
                "sentences": ragged(sentences, counts, validate=False),
            }

        batches = dataset.map(lambda x: x["text"], synchronous=True).batch(DOCUMENTS_A_CALL)
        return unbatch(batches.map(fn, num_parallel_calls=tf.data.AUTOTUNE))

    def preprocess(
        self,
        dataset: tf.data.Dataset,
        sequence_length: Mapping[str, int],
        output_features: Mapping[str, seqio.Feature],
        task: str = "(unnamed)",
        reading: Reading = DEFAULT_READING,
    ) -> tf.data.Dataset:
        """Turn what `tokenize` returns into sequences of sentences with masks."""
        vocabulary = vocabularies.masking(output_features["targets"].vocabulary)
        make = self._maker(_check_lengths(self, sequence_length, task), vocabulary)
        select = lambda x: {k: x[k] for k in ("targets", "sentences")}
        batches = dataset.map(select, synchronous=True)
        batches = batches.ragged_batch(DOCUMENTS_MASKED_A_CALL)
        # A step of its own, as in the data positions of older runs.
        density = lambda x: x | {"density": tf.constant(self.masking.density, tf.float64)}
        batches = batches.map(density, synchronous=True)

        @seqio.map_over_dataset(num_seeds=1)
        def make_examples(example, seed):
            ids, sentences = example["targets"], example["sentences"]
            # As in Objective.preprocess: other shards draw the same seeds in the same order.
            total = tf.reduce_sum(ids.flat_values)
            seed = tf.random.experimental.stateless_fold_in(tf.stack(seed), total)
            documents = [ids.flat_values, sentences.flat_values, sentences.row_lengths()]
            arguments = [*documents, example["density"], seed]
            specs = [_IDS, _IDS, _IDS, _IDS, _IDS, _SIZES]
            *flat, labels, lengths = tf_callbacks.call(make, specs, *arguments)
            names = ["inputs", "targets", "loss_weights", *["type_ids"] * self.pairs]
            ragged = lambda x: tf.RaggedTensor.from_row_lengths(x, lengths, validate=False)
            rows = dict(zip(names, map(ragged, flat), strict=False))
            return rows | ({PAIR_LABEL: labels[:, tf.newaxis]} if self.pairs else {})

        return unbatch(make_examples(batches))

    def _maker(self, room: int, vocabulary: TokenizerVocabulary) -> Callable:
        """Return the function of NumPy arrays that makes examples."""
        spans_of = sequences.pair_spans if self.pairs else sequences.single_spans
        if self.sentences == "none":
            spans_of = sequences.free_spans
        cls, sep = vocabulary.roles["cls"], vocabulary.roles["sep"]
        # When the first text is read, since it takes a moment.
        facts = functools.cache(lambda: piece_facts(vocabulary))

        def make(ids, sentences, lengths, density, seed):
            rng = np.random.default_rng(np.asarray(seed).view(np.uint32))
            documents = sequences.Documents(ids, sentences, lengths)
            spans = spans_of(documents, room, self.short, rng)
            laid = sequences.lay_out(ids, spans, cls, sep)
            inputs, weights = self.masking.hide(
                laid.tokens, laid.lengths, facts(), float(density), rng
            )
            labels = np.array([span[-1] for span in spans], np.int32)
            return inputs, laid.tokens, weights, laid.types, labels, laid.lengths

        return make


def _check_lengths(objective: MaskedLM, sequence_length: Mapping[str, int], task: str) -> int:
    """Return the tokens of text that an example holds.

    Raises:
      UserError: inputs and targets differ in length, or are too short.
    """
    inputs, targets = sequence_length["inputs"], sequence_length.get("targets")
    if inputs != targets:
        raise UserError(
            "TASK_FEATURE_LENGTHS",
            dict(sequence_length),
            "but with masked_lm the targets are the inputs without masks",
            f"set both to {inputs}",
        ).at(f"task {task}")
    return objective.lengths(inputs).tokens


BERT = MaskedLM(pairs=True, short=0.1)
MODERNBERT = MaskedLM(Masking(density=0.3))  # Warner et al. 2024, arXiv:2412.13663, section 3.1
