"""Diacritics restoration tasks: from text without diacritics to the original, for any corpus.

    source = CorpusSource("user/name", held_out={"validation": 0.01})
    add("ro_web_diacritics", source, vocabularies.ro_model, language="ro")

| task | text | vocabulary |
|---|---|---|
| ro_diacritics | hub, dumitrescustefan/diacritic | own, 64,000 pieces |
| ro_diacritics_byt5 | the same | bytes |
| ro_mini_diacritics | data/ro_mini | its own, 2,048 pieces |
| ro_mini_diacritics_byt5 | the same | bytes |

Inputs are made on the fly by `tasks.jobs.diacritics.letters`. Long documents become several
examples, cut at sentence ends to fit TASK_FEATURE_LENGTHS; nothing is truncated. For the metrics
see `tasks.jobs.diacritics.metrics`, for another language `letters.LETTERS`. Each task has a twin,
`<task>_lines`, which reads your own text file, `lines.path`, for `launch/restore_diacritics.sh`.
The model reads bare text, as in training, while `inputs_pretokenized` keeps the file's diacritics.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

import gin
from tasks import corpora, vocabularies
from tasks.corpus import tf_callbacks
from tasks.corpus.source import CorpusSource
from tasks.jobs.diacritics import metrics
from tasks.jobs.diacritics.letters import alphabet
from tasks.romanian import RO_MINI
from tasks.task import Task
from tasks.text import normalize, sentence_split, token_chunks, tokenize

# If a run sets none, as in evaluation; tokens, EOS included.
LENGTHS = {"inputs": 256, "targets": 256}
DOCUMENTS_A_CALL = 16
# Documents of the training split in which the most frequent forms are counted.
BASELINE_DOCUMENTS = 2000


@gin.configurable(module="tasks.jobs.diacritics")
def lines(path: str = "lines.txt") -> dict[str, str]:
    """Return the text file that the tasks named `<task>_lines` read."""
    return {"test": path}


LINES = CorpusSource(files=lines, splits=("test",))


def add(
    name: str,
    source: CorpusSource,
    vocabulary: corpora.Vocabulary,
    language: str = "ro",
    lengths: Mapping[str, int] = LENGTHS,
) -> seqio.Task:
    """Register a task that restores the diacritics of a corpus, and its twin `<name>_lines`.

    Args:
      vocabulary: as for `tasks.corpora.token_feature`.
      language: a key of `tasks.jobs.diacritics.letters.LETTERS`.
      lengths: in tokens, if a run sets none.

    Raises:
      UserError: the letters of the language are unknown.
    """
    feature = corpora.token_feature(vocabulary)
    alphabet(language)
    forms = functools.cache(lambda: frequent_forms(source, language))
    preprocessors = [
        functools.partial(normalize.preprocess, cedilla=language == "ro"),
        functools.partial(make_examples, language=language, lengths=dict(lengths)),
        tokenize.tokenize_examples,
        token_chunks.append_eos,
    ]
    settings: dict[str, Any] = {
        "output_features": {"inputs": feature, "targets": feature},
        "shuffle_buffer_size": corpora.SHUFFLED_CHUNKS,
        "task_cls": Task,
    }
    keep = functools.partial(keep_diacritics, language=language)
    seqio.TaskRegistry.add(f"{name}_lines", LINES, preprocessors=[*preprocessors, keep], **settings)
    metric_fns = [metrics.metric(language, forms)]
    return seqio.TaskRegistry.add(
        name, source, preprocessors=preprocessors, metric_fns=metric_fns, **settings
    )


def make_examples(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    language: str = "ro",
    lengths: Mapping[str, int] = LENGTHS,
    sequence_length: Mapping[str, int] | None = None,
) -> tf.data.Dataset:
    """Turn documents {"text"} into string scalars {"inputs", "targets"} that fit with EOS."""
    limit = min((sequence_length or lengths)[side] for side in ("inputs", "targets")) - 1
    count = token_count(output_features["targets"].vocabulary, language)
    bare = alphabet(language).bare

    def cut(texts):
        pieces = [
            piece
            for text in texts
            for piece in sentence_split.split_to_fit(text.decode(), count, limit)
        ]
        out = np.empty([2, len(pieces)], object)
        out[:] = [[bare(piece).encode() for piece in pieces], [piece.encode() for piece in pieces]]
        return out

    def fn(texts):
        pair = tf_callbacks.call(cut, tf.TensorSpec([2, None], tf.string), texts)
        return {"inputs": pair[0], "targets": pair[1]}

    batches = dataset.map(lambda x: x["text"]).batch(DOCUMENTS_A_CALL)
    # One call at a time, since calls of Python wait for each other, and what they have made ahead
    # delays the first batch.
    return batches.map(fn, num_parallel_calls=1).unbatch()


def keep_diacritics(dataset: tf.data.Dataset, language: str) -> tf.data.Dataset:
    """Add what `tasks.jobs.diacritics.restore` needs besides a prediction, for t5x.infer to write.

    `inputs_pretokenized` becomes the input with its original diacritics. The language has that
    suffix too, since t5x.infer writes the features that end so.
    """
    return dataset.map(
        lambda x: {
            **x,
            "inputs_pretokenized": x["targets_pretokenized"],
            "language_pretokenized": language,
        }
    )


def token_count(vocabulary: seqio.Vocabulary, language: str) -> Callable:
    """Return a function from texts to the tokens of each: the more, with or without diacritics.

    In bytes it counts the longest spelling of the bare letters, since the restored text must fit
    too and is not known when a text is cut.
    """
    letters = alphabet(language)
    size = lambda form: len(form.encode())
    longest = {bare: max(forms, key=size) for bare, forms in letters.forms.items()}

    def count(texts):
        bare = list(map(letters.bare, texts))
        if not isinstance(vocabulary, seqio.SentencePieceVocabulary):
            return [len(normalize.replace_letters(text, longest).encode()) for text in bare]
        # By default it starts a thread for each core and text, in each of the pipeline's threads.
        encode = functools.partial(vocabulary.tokenizer.encode, num_threads=1)
        pairs = zip(encode(texts), encode(bare), strict=True)
        return [max(len(ids), len(bare_ids)) for ids, bare_ids in pairs]

    return count


def frequent_forms(source: CorpusSource, language: str) -> dict[str, str]:
    """Return the most frequent form of each word at the beginning of the training split."""
    texts = source.peek("train", BASELINE_DOCUMENTS)
    normalized = (normalize.normalize(text, cedilla=language == "ro") for text in texts)
    return metrics.frequent_forms(normalized, language)


DIACRITIC = CorpusSource(
    "dumitrescustefan/diacritic", splits=("train", "validation"), held_out={"test": 0.005}
)

add("ro_diacritics", DIACRITIC, vocabularies.ro_model)
add("ro_diacritics_byt5", DIACRITIC, vocabularies.byt5())
add(
    "ro_mini_diacritics",
    RO_MINI,
    vocabularies.ro_mini_model,
    lengths={"inputs": 32, "targets": 32},  # as in gin/ro_diacritics_tiny.gin
)
add("ro_mini_diacritics_byt5", RO_MINI, vocabularies.byt5())
