"""Classification by one token: each class is one piece of the vocabulary, people see its label.

    source = Rows("user/name", columns={"inputs": "text", "targets": "label"},
                  labels={"targets": {"0": "no", "1": "yes, but late"}})
    add("my_classes", source, vocabularies.t5_model, prefix="spam: ")

| task | text | vocabulary | classes |
|---|---|---|---|
| quality | Stack Overflow, CSV: `quality_files` | T5's | none, low, high |
| quality_tiny | the same | data/ro_mini's | the same |

Labels have any length and script: `pieces_of` gives each a piece, and metrics and predictions have
the labels. Long texts keep their beginning and end (`pairs.keep_both_ends`).
"""

import collections
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import seqio

import gin
from common.errors import UserError
from common.metric_names import BASELINE, CONFUSION
from common.source import labels_of
from tasks import corpora, pairs, vocabularies
from tasks.corpus.records.documents import Columns
from tasks.rows import Rows
from tasks.text import html_text

LENGTHS = {"inputs": 512, "targets": 2}
OTHER = "(no class)"  # class of any other prediction
MOST_CONFUSED = 50  # classes in a confusion matrix, which has a number for every two
PREFIX = "quality: "


def add(
    name: str,
    source: Rows,
    vocabulary: corpora.Vocabulary,
    classes: Sequence[str] = (),
    prefix: str = "",
    lengths: Mapping[str, int] = LENGTHS,
    **settings,
) -> seqio.Task:
    """Register a task whose target is one of `classes`; settings are as in `tasks.pairs.add`.

    Without `classes` they are the labels that the source names. Rows with other targets are skipped
    and counted.

    Raises:
      UserError: there are no two distinct classes, or the source names a label that is no class.
    """
    if not isinstance(columns := source.column, Columns):
        raise UserError(f"task {name}", why="classifies rows", to_set="give its source `columns`")
    classes = classes or tuple(dict.fromkeys(columns.names_of("targets")))
    is_label = lambda name: (
        isinstance(name, str) and name == name.strip() and name not in ("", OTHER)
    )
    if isinstance(classes, str) or len({*filter(is_label, classes)}) < max(len(classes), 2):
        raise UserError(
            "classes",
            classes,
            "but must be two or more distinct texts without blanks at their ends",
            "set `classes`, or `labels` of its source",
        ).at(f"task {name}")
    feature = corpora.token_feature(vocabulary)
    return pairs.add(
        name,
        source.with_column(columns.only("targets", classes)),
        feature.vocabulary,
        prefix,
        metric_fns=[metric(classes)],
        lengths=lengths,
        cut=pairs.keep_both_ends,
        labels=functools.cache(lambda: pieces_of(feature.vocabulary, classes)),
        **settings,
    )


def ids_of(task: str) -> Callable[[], tuple[int, ...]]:
    """Return a function that returns the ids of a task's classes, for `t5x.classifier`.

        classifier.one_token.ids = @tasks.jobs.classification.ids_of()
        tasks.jobs.classification.ids_of.task = %MIXTURE_OR_TASK_NAME

    `add` must have registered the task when the function is called.
    """

    def ids():
        registry = seqio.TaskRegistry
        classifier = registry.get(task) if task in registry.names() else None
        if classifier is None or not (labels := labels_of(classifier)):
            raise UserError(
                "tasks.jobs.classification.ids_of.task",
                task,
                "which is not a classification task",
                "set it to the name given to tasks.jobs.classification.add",
            )
        vocabulary = classifier.output_features["targets"].vocabulary
        return tuple(vocabulary.encode(piece)[0] for piece in labels.values())

    return ids


def pieces_of(vocabulary: seqio.Vocabulary, classes: Sequence[str]) -> dict[str, str]:
    """Return a piece for each class, by label; all are distinct texts of one token.

    A label that is one token is its own piece. Any other label takes the first unused piece of its
    name, or else the first unused piece of the vocabulary that begins with a letter or digit:
    "none" becomes "n" if it is not one token.

    Raises:
      UserError: the vocabulary has too few pieces.
    """
    pieces: dict[str, str] = {}
    text_of = lambda i: vocabulary.decode([i]).strip()

    def is_free(i: int) -> bool:
        text = text_of(i)
        is_piece = bool(text) and i != vocabulary.unk_id and vocabulary.encode(text) == [i]
        return is_piece and text not in pieces.values()

    names = {label: vocabulary.encode(label) for label in classes}
    others = (i for i in range(vocabulary.vocab_size) if text_of(i)[:1].isalnum())
    for label, ids in names.items():
        if len(ids) == 1 and is_free(ids[0]):
            pieces[label] = text_of(ids[0])
    for label in (label for label in classes if label not in pieces):
        piece = next(filter(is_free, itertools.chain(names[label], others)), None)
        if piece is None:
            raise UserError(
                "the vocabulary",
                vocabularies.name_of(vocabulary),
                f"which has pieces for {len(pieces)} of {len(classes)} classes",
                "choose a larger one, or fewer classes",
            )
        pieces[label] = text_of(piece)
    return {label: pieces[label] for label in classes}


def scores(
    targets: Sequence[str], predictions: Sequence[str], classes: Sequence[str]
) -> dict[str, float]:
    """Return accuracy, the F1 of each class and their mean, 0..1, and the confusion matrix.

    The F1 of a class that is neither a target nor predicted is 0, as in scikit-learn where all
    classes are listed (`labels=`), and counts in the mean. The names are f1/<class> and
    confusion/<class>/<class predicted>, in examples, where other predictions are `OTHER`; more than
    `MOST_CONFUSED` classes have no matrix. baseline/accuracy and baseline/mean_f1 are the scores of
    answering with the most frequent class alone.
    """
    class_of = lambda text: text.strip() if text.strip() in classes else OTHER
    counts = collections.Counter(
        (target.strip(), class_of(text)) for target, text in zip(targets, predictions, strict=True)
    )
    total = sum(counts.values())
    of_target, of_prediction = collections.Counter[str](), collections.Counter[str]()
    for (target, prediction), n in counts.items():
        of_target[target] += n
        of_prediction[prediction] += n
    right = sum(counts[name, name] for name in classes)
    metrics = {"accuracy": right / total if total else 0.0}
    for name in classes:
        size = of_target[name] + of_prediction[name]
        metrics[f"f1/{name}"] = 2 * counts[name, name] / size if size else 0.0
    metrics["mean_f1"] = sum(metrics[f"f1/{name}"] for name in classes) / len(classes)
    share = max(of_target[name] for name in classes) / total if total else 0.0
    metrics[f"{BASELINE}accuracy"] = share
    metrics[f"{BASELINE}mean_f1"] = 2 * share / (1 + share) / len(classes)
    if len(classes) <= MOST_CONFUSED:
        for target in classes:
            for prediction in (*classes, OTHER):
                metrics[f"{CONFUSION}{target}/{prediction}"] = counts[target, prediction]
    return metrics


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


def quality() -> Rows:
    """Return the question-quality set; `validation` is a part held out of 'train'."""
    return Rows(
        files=quality_files,
        splits=("train", "test"),
        held_out={"validation": 0.05},
        columns={"inputs": "{Title}\n{Body}", "targets": "Y"},
        labels={"targets": LABELS},
        clean={"Body": html_text.text_of},
    )


LABELS = {"LQ_CLOSE": "none", "LQ_EDIT": "low", "HQ": "high"}

add("quality", quality(), vocabularies.t5_model, prefix=PREFIX)
add("quality_tiny", quality(), vocabularies.ro_mini_model, prefix=PREFIX)
