"""Diacritics restoration: from text without diacritics to the text as it was, any corpus.

    add("ro_web_diacritics", CorpusSource("user/name"), vocabularies.ro_model, language="ro")

| task | text | vocabulary |
|---|---|---|
| ro_diacritics | hub, dumitrescustefan/diacritic | own, 64,000 pieces |
| ro_diacritics_byt5 | the same | bytes |
| ro_mini_diacritics | data/ro_mini | its own, 2,048 pieces |
| ro_mini_diacritics_byt5 | the same | bytes |

Inputs are made on the fly by `tasks.diacritics.letters`, which changes listed letters and no other.
Long documents become several examples, cut at sentence ends so that none is longer than
TASK_FEATURE_LENGTHS; nothing is cut off. What is measured stands in `tasks.diacritics.metrics`; for
a language of yours see `letters.LETTERS`. Beside each task stands `<task>_lines`, which reads a
text file of yours, `lines.path`, as `launch/restore_diacritics.sh` does: the model reads bare
text, as it has learned to, while `inputs_pretokenized` keeps the diacritics that the file has.
"""

import functools
import hashlib
from collections.abc import Callable, Mapping

import numpy as np
import seqio
import tensorflow as tf

import gin
from tasks import caches, corpora, vocabularies
from tasks.diacritics import constraint, metrics
from tasks.diacritics.letters import alphabet
from tasks.romanian import RO_MINI
from tasks.rows import Rows
from tasks.sources import CorpusSource
from tasks.streaming import tf_callbacks
from tasks.text import normalize, sentence_split

# Where a run sets none, as evaluation does; tokens, EOS counted.
LENGTHS = {"inputs": 256, "targets": 256}
DOCUMENTS_A_CALL = 16
# Documents of the training split that the most frequent forms are counted in.
BASELINE_DOCUMENTS = 2000


@gin.configurable(module="tasks.diacritics")
def lines(path: str = "lines.txt") -> dict[str, str]:
    """The text file that the tasks named `<task>_lines` read."""
    return {"test": path}


LINES = Rows(files=lines, splits=("test",))
_languages: dict[str, str] = {}  # by task


def only_diacritics(task: str, words: str | None = None) -> Callable:
    """Returns what holds t5x.infer to the letters of its inputs, see `tasks.diacritics.constraint`.

        infer_script.infer.constraint = @tasks.diacritics.only_diacritics()
        tasks.diacritics.only_diacritics.task = %MIXTURE_OR_TASK_NAME

    Args:
      task: the name of one that `add` registers before the first text is decoded.
      words: a text file of known words, one a line; a word whose letters some of them have becomes
        one of these.
    """

    @functools.cache
    def found():
        if task not in _languages:
            raise ValueError(
                f"tasks.diacritics.only_diacritics.task is {task!r}, which is no task that "
                "restores diacritics: set it to the name given to tasks.diacritics.add"
            )
        vocabulary = seqio.TaskRegistry.get(task).output_features["targets"].vocabulary
        return constraint.Diacritics(vocabulary, _languages[task], listed(words) if words else ())

    def constrain(texts):
        return found()(texts)

    def identity():
        known = "\n".join(listed(words)).encode() if words else b""
        return {"task": task, "words": hashlib.sha256(known).hexdigest() if words else None}

    constrain.identity = identity  # for t5x.infer, which goes on with no other
    return constrain


def listed(path: str) -> list[str]:
    """Returns the words of a text file, one a line.

    Raises:
      ValueError: there is no such file, or it is not UTF-8.
    """
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            text = file.read().decode("utf-8-sig")
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        raise ValueError(
            f"tasks.diacritics.only_diacritics.words is {path!r}, which cannot be read as UTF-8 "
            f"text ({error}): set it to a file of words, one a line, or to None"
        ) from error
    return [normalize.normalize(line.strip()) for line in text.splitlines() if line.strip()]


def add(
    name: str,
    source: CorpusSource,
    vocabulary: corpora.Vocabulary,
    language: str = "ro",
    lengths: Mapping[str, int] = LENGTHS,
) -> seqio.Task:
    """Registers a task that restores the diacritics of a corpus.

    Args:
      name: the task's name.
      source: where the documents come from.
      vocabulary: as `tasks.corpora.add` has it.
      language: of `tasks.diacritics.letters.LETTERS`.
      lengths: of examples where a run gives none.

    Raises:
      ValueError: the language's letters are not known.
    """
    if not isinstance(vocabulary, seqio.Vocabulary):
        vocabulary = vocabularies.sentencepiece(vocabulary)
    alphabet(language)
    feature = seqio.Feature(vocabulary=vocabulary, add_eos=True, dtype=tf.int32)
    forms = functools.cache(lambda: frequent_forms(source, language))
    settings = {
        "preprocessors": [
            functools.partial(normalize.preprocess, cedilla=language == "ro"),
            functools.partial(examples, language=language, lengths=dict(lengths)),
            seqio.preprocessors.tokenize,
            seqio.preprocessors.append_eos,
        ],
        "output_features": {"inputs": feature, "targets": feature},
        "shuffle_buffer_size": corpora.SHUFFLED_RUNS,
        "task_cls": caches.Task,
    }
    _languages[name] = _languages[f"{name}_lines"] = language
    of_lines = settings | {"preprocessors": [*settings["preprocessors"], as_given]}
    seqio.TaskRegistry.add(f"{name}_lines", source=LINES, **of_lines)
    metric = metrics.metric(language, forms)
    return seqio.TaskRegistry.add(name, source=source, metric_fns=[metric], **settings)


def examples(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    language: str = "ro",
    lengths: Mapping[str, int] = LENGTHS,
    sequence_length: Mapping[str, int] | None = None,
) -> tf.data.Dataset:
    """Turns {"text"} a document into {"inputs", "targets"} a piece of it, string scalars.

    A piece with EOS is no longer than `sequence_length`, where that is given, else `lengths`.
    """
    limit = min((sequence_length or lengths)[side] for side in ("inputs", "targets")) - 1
    count = token_count(output_features["targets"].vocabulary, language)
    bare = alphabet(language).bare

    def cut(texts):
        found = [p for t in texts for p in sentence_split.pieces(t.decode(), count, limit)]
        out = np.empty([2, len(found)], object)
        out[:] = [[bare(p).encode() for p in found], [p.encode() for p in found]]
        return out

    call = tf_callbacks.guard(cut, np.empty([2, 0], object))

    def fn(texts):
        pair = tf.ensure_shape(
            tf.numpy_function(call, [texts], tf.string, stateful=False), [2, None]
        )
        return {"inputs": pair[0], "targets": pair[1]}

    batches = dataset.map(lambda x: x["text"]).batch(DOCUMENTS_A_CALL)
    return batches.map(fn, num_parallel_calls=tf.data.AUTOTUNE).unbatch()


def as_given(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Shows each input with the diacritics it had, which `constraint` then keeps."""
    return dataset.map(lambda x: {**x, "inputs_pretokenized": x["targets_pretokenized"]})


def token_count(vocabulary: seqio.Vocabulary, language: str) -> Callable:
    """Returns a function from texts to tokens of each, as it is or stripped, whichever has more.

    Of bytes it is those of the widest spelling that the bare letters may have: what is restored
    must fit too, and is not known when a text is cut.
    """
    letters = alphabet(language)
    widest = str.maketrans(
        {
            bare: max(forms, key=lambda form: len(form.encode()))
            for bare, forms in letters.forms.items()
        }
    )

    def count(texts):
        bare = list(map(letters.bare, texts))
        if not isinstance(vocabulary, seqio.SentencePieceVocabulary):
            return [len(text.translate(widest).encode()) for text in bare]
        sizes = [len(ids) for ids in vocabulary.tokenizer.encode([*texts, *bare])]
        return [max(pair) for pair in zip(sizes[: len(texts)], sizes[len(texts) :], strict=True)]

    return count


def frequent_forms(source: CorpusSource, language: str) -> dict[str, str]:
    """Returns the most frequent form of each word at the beginning of the training split."""
    texts = source.peek("train", BASELINE_DOCUMENTS)
    cedilla = language == "ro"
    return metrics.frequent_forms(
        (normalize.normalize(text, cedilla=cedilla) for text in texts), language
    )


DIACRITIC = Rows(
    "dumitrescustefan/diacritic", splits=("train", "validation"), held_out={"test": 0.005}
)

add("ro_diacritics", DIACRITIC, vocabularies.ro_model)
add("ro_diacritics_byt5", DIACRITIC, vocabularies.byt5())
add(
    "ro_mini_diacritics",
    RO_MINI,
    vocabularies.ro_mini_model,
    lengths={"inputs": 32, "targets": 32},  # what gin/ro_diacritics_tiny.gin trains on
)
add("ro_mini_diacritics_byt5", RO_MINI, vocabularies.byt5())
