"""The jobs of `tasks.languages.downstream` for encoders, which label texts or compare them.

    add("topic", "ro", "my_vocabulary")                   # the task "topic", in Romanian

| job | data | an encoder gives | metrics |
|---|---|---|---|
| topic | SIB-200 | a sentence one of 7 topics | accuracy, F1 |
| entities | WikiANN | each word a label, such as B-PER | entity F1 |
| inference | XNLI | a pair of texts 1 of 3 relations | accuracy, F1 |
| paraphrase | PAWS-X | a pair of texts yes or no | accuracy, F1 |
| similarity | XNLI, STSb (PhilipMay/stsb_multi_mt) | a text a vector | Spearman's correlation |

Vectors are learned from the texts of XNLI that follow from each other, and measured on the pairs of
STSb with known similarities, another task, `similarity`; that of training is `similarity_pairs`.
STSb's translations are machine-made; its columns and splits were not compared with the hub.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import seqio

import gin
from tasks import labels, similarity
from tasks.languages import downstream
from tasks.rows import Rows

PAIRS = "similarity_pairs"
ENTITIES = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")  # WikiANN's 0 to 6


@dataclasses.dataclass(frozen=True)
class Labelling:
    """What an encoder reads of a job's data; see `tasks.labels` and `tasks.rows.Rows`."""

    columns: Mapping[str, str]
    labels: Sequence[str]
    of_words: bool = False
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


LABELLED: Mapping[str, Labelling] = {
    "topic": Labelling({"inputs": "text", "targets": "category"}, downstream.TOPICS),
    "entities": Labelling(
        {"inputs": "tokens", "targets": "ner_tags"},
        ENTITIES,
        of_words=True,
        settings={
            "lists": {"tokens": labels.joined, "ner_tags": labels.joined},
            "labels": {"targets": {str(i): name for i, name in enumerate(ENTITIES)}},
        },
    ),
    "inference": Labelling(
        {"first": "premise", "second": "hypothesis", "targets": "label"},
        tuple(downstream.RELATIONS.values()),
        settings={"labels": {"targets": downstream.RELATIONS}},
    ),
    "paraphrase": Labelling(
        {"first": "sentence1", "second": "sentence2", "targets": "label"},
        tuple(downstream.ANSWERS.values()),
        settings={"labels": {"targets": downstream.ANSWERS}},
    ),
}
# By job, the metric by which the best checkpoint is chosen.
METRICS = {
    "topic": "mean_f1",
    "entities": "f1",
    "inference": "mean_f1",
    "paraphrase": "mean_f1",
    "similarity": "spearman",
}


def add(
    job: str, language: str, vocabulary: str | seqio.Vocabulary, length: int = labels.LENGTH
) -> seqio.Task:
    """Register the task of a job in a language under the job's name; see `tasks.labels.text`.

    Raises:
      ValueError: an encoder cannot do the job, or its data lacks the language.
    """
    check(job)
    config = downstream.config(job, language)
    corpus = downstream.JOBS[job].corpus
    if job == "similarity":
        columns = {"first": "sentence1", "second": "sentence2", "targets": "{similarity_score}"}
        splits = {"validation": "dev", "test": "test"}
        known = Rows(corpus, config, columns=columns, splits=splits)
        similarity.pairs(PAIRS, _entailed(language), vocabulary, length)
        return similarity.pairs(job, known, vocabulary, length)
    chosen = LABELLED[job]
    rows = Rows(
        corpus, config, columns=chosen.columns, splits=downstream.SPLITS, **dict(chosen.settings)
    )
    register = labels.words if chosen.of_words else labels.text
    return register(job, rows, vocabulary, chosen.labels, length=length)


def check(job: str) -> None:
    """Raise ValueError for a job that writes texts."""
    if job not in METRICS:
        raise ValueError(
            f"an encoder cannot do the job {job!r}, which writes texts: start from a T5, or choose "
            f"one of {', '.join(METRICS)}"
        )


def _entailed(language: str) -> Rows:
    """Return the pairs of XNLI whose second text follows from the first."""
    return Rows(
        downstream.JOBS["inference"].corpus,
        downstream.config("inference", language),
        columns={"first": "premise", "second": "hypothesis", "targets": "label"},
        labels={"targets": {"0": "1"}},
        splits=("train", "validation"),
    )


_added: dict[str, tuple] = {}


@gin.configurable
def task(
    job: str,
    language: str,
    vocabulary: seqio.Vocabulary,
    length: int = labels.LENGTH,
    measured: bool = False,
) -> str:
    """Register the task of a job, in the model's vocabulary, and return the name to train on.

        MIXTURE_OR_TASK_NAME = @encoder_jobs.task()    # as gin/shared/encoder_labels.gin has it

    With `measured` it is the name to measure. `length`, in tokens, is that of `tasks.labels.text`.

    Raises:
      ValueError: see `add`.
    """
    given = language, vocabulary, length
    name = PAIRS if job == "similarity" else job
    if _added.get(job) != given:
        if job in _added:
            for old in {job, name}:
                seqio.TaskRegistry.remove(old)
        add(job, *given)
        _added[job] = given
    return job if measured else name
