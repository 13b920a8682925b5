"""Classification by one token: the model predicts the name of the class, a single piece.

    source = Rows("user/name", columns={"inputs": "text", "targets": "label"},
                  labels={"targets": {"0": "no", "1": "yes"}})
    add("my_classes", source, vocabularies.t5_model, classes=("no", "yes"), prefix="spam: ")

| task | text | vocabulary | classes |
|---|---|---|---|
| quality | Stack Overflow, CSV: `quality_files` | T5's | none, low, high |
| quality_tiny | the same | data/ro_mini's | n, l, h |

Long texts keep their beginning and end (`pairs.keep_both_ends`).
"""

import collections
import copy
import difflib
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import seqio

import gin
from common.errors import UserError
from tasks import pairs, vocabularies
from tasks.corpus.documents import Columns
from tasks.rows import Rows
from tasks.text import html_text

LENGTHS = {"inputs": 512, "targets": 2}
OTHER = "(no class)"  # of any other prediction; more than one token, so never a class's name
PREFIX = "quality: "
_classes: dict[str, tuple[str, ...]] = {}  # by task


def add(
    name: str,
    source: Rows,
    vocabulary,
    classes: Sequence[str],
    prefix: str = "",
    lengths: Mapping[str, int] = LENGTHS,
    **settings,
) -> seqio.Task:
    """Register a task whose target is one of `classes`; settings are as in `tasks.pairs.add`.

    Rows with other targets are skipped and counted. A run checks that each class is one token, see
    `class_ids`; UserError is raised here if the name of a label is not one of the classes.
    """
    if not isinstance(columns := source.column, Columns):
        raise UserError(f"task {name} classifies rows: give its source `columns`")
    source = copy.copy(source)  # other tasks may use it unchanged
    source.column = columns.only("targets", classes)
    source.reset_counter()
    _classes[name] = tuple(classes)
    return pairs.add(
        name,
        source,
        vocabulary,
        prefix,
        metric_fns=[metric(classes)],
        lengths=lengths,
        cut=pairs.keep_both_ends,
        checks=functools.partial(class_ids, classes=classes),
        **settings,
    )


def ids_of(task: str) -> Callable[[], tuple[int, ...]]:
    """Return a function that returns the ids of a task's classes, for `t5x.classifier`.

        classifier.one_token.ids = @tasks.jobs.classification.ids_of()
        tasks.jobs.classification.ids_of.task = %MIXTURE_OR_TASK_NAME

    `add` must have registered the task when the function is called.
    """

    def ids():
        if task not in _classes:
            raise UserError(
                f"tasks.jobs.classification.ids_of.task is {task!r}, which is not a classification "
                "task: set it to the name given to tasks.jobs.classification.add"
            )
        vocabulary = seqio.TaskRegistry.get(task).output_features["targets"].vocabulary
        return class_ids(vocabulary, _classes[task])

    return ids


def class_ids(vocabulary: seqio.Vocabulary, classes: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of classes, or raise UserError, with a better name, for several tokens."""
    if isinstance(classes, str) or len(classes) < 2:
        raise UserError(f"classes are {classes!r}, but must be two names or more")
    ids = [vocabulary.encode(name) for name in classes]
    taken = {name for name, found in zip(classes, ids, strict=True) if len(found) == 1}
    for name, found in zip(classes, ids, strict=True):
        if len(found) != 1 or found[0] == vocabulary.unk_id:
            raise UserError(
                f"class {name!r} is {len(found)} tokens of the task's vocabulary, but must be one "
                f"of its pieces: call it {_one_token(name, vocabulary, taken)}, for example, in "
                "the task's classes and labels"
            )
    if len({found[0] for found in ids}) < len(ids):
        raise UserError(f"classes {list(classes)} must be distinct, but two are the same token")
    return tuple(found[0] for found in ids)


def _one_token(name: str, vocabulary: seqio.Vocabulary, taken: set[str]) -> str:
    """Return a form of the name that is one token, else the words most like it that are."""

    def fits(other: str) -> bool:
        found = vocabulary.encode(other)
        return other not in taken and len(found) == 1 and found[0] != vocabulary.unk_id

    shorter = (name[:n] for n in range(len(name) - 1, 0, -1))
    if form := next(filter(fits, (name.lower(), name.capitalize(), *shorter)), None):
        return repr(form)
    pieces = (vocabulary.decode([i]).strip() for i in range(vocabulary.vocab_size))
    unlike = lambda word: (-difflib.SequenceMatcher(None, word, name).ratio(), len(word), word)
    words = sorted({piece for piece in pieces if piece[:1].isalpha()}, key=unlike)
    return " or ".join(map(repr, itertools.islice(filter(fits, words), 3)))


def scores(
    targets: Sequence[str], predictions: Sequence[str], classes: Sequence[str]
) -> dict[str, float]:
    """Return accuracy, f1 of each class and their mean, 0..1, and the confusion matrix.

    f1/<class>; confusion/<class>/<class predicted>, in examples; other predictions are `OTHER`.
    """
    known = set(classes)
    class_of = lambda text: text.strip() if text.strip() in known else OTHER
    counts = collections.Counter(
        (target.strip(), class_of(text)) for target, text in zip(targets, predictions, strict=True)
    )
    total = sum(counts.values())
    found = {"accuracy": sum(counts[c, c] for c in classes) / total if total else 0.0}
    for name in classes:
        wanted = sum(n for (target, _), n in counts.items() if target == name)
        given = sum(n for (_, text), n in counts.items() if text == name)
        found[f"f1/{name}"] = 2 * counts[name, name] / (wanted + given) if wanted + given else 0.0
    found["mean_f1"] = sum(found[f"f1/{name}"] for name in classes) / len(classes)
    for target in classes:
        for text in (*classes, OTHER):
            found[f"confusion/{target}/{text}"] = counts[target, text]
    return found


def metric(classes: Sequence[str]) -> Callable[..., dict[str, float]]:
    """Return `scores` as a seqio metric function."""

    def classification(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
        return scores(targets, predictions, classes)

    return classification


@gin.configurable
def quality_files(
    train: str = "data/quality/train.csv", test: str = "data/quality/valid.csv"
) -> dict[str, str]:
    """Return the CSV files of the question-quality set, with columns Title, Body and Y."""
    return {"train": vocabularies.resolve(train), "test": vocabularies.resolve(test)}


def quality(labels: Mapping[str, str]) -> Rows:
    """Return the question-quality set; `validation`, which selects checkpoints, is held out."""
    return Rows(
        files=quality_files,
        splits=("train", "test"),
        held_out={"validation": 0.05},
        columns={"inputs": "{Title}\n{Body}", "targets": "Y"},
        labels={"targets": labels},
        clean={"Body": html_text.text_of},
    )


NAMES = {"LQ_CLOSE": "none", "LQ_EDIT": "low", "HQ": "high"}
INITIALS = {label: name[0] for label, name in NAMES.items()}

add("quality", quality(NAMES), vocabularies.t5_model, tuple(NAMES.values()), PREFIX)
add("quality_tiny", quality(INITIALS), vocabularies.ro_mini_model, tuple(INITIALS.values()), PREFIX)
