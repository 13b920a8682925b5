"""Tasks of a language by its code: what a pretrained model is fine-tuned and measured on.

    add("topic", "ro", vocabularies.mt5_model)            # the task "topic", in Romanian
    source("entities", "romanian")                        # its rows, for a task of your own

| job | data | languages | inputs and targets | metrics |
|---|---|---|---|---|
| topic | SIB-200, Davlan/sib200, CC BY-SA 4.0 | 205 | sentence: one of 7 topics | accuracy, F1 |
| entities | WikiANN, unimelb-nlp/wikiann | 176 | sentence: its named spans | span F1 |
| inference | XNLI, facebook/xnli, CC BY-NC 4.0 | 15 | two texts: 1 of 3 relations | accuracy, F1 |
| paraphrase | PAWS-X, google-research-datasets/paws-x | 7 | two texts: yes or no | accuracy, F1 |
| summary | XL-Sum, csebuetnlp/xlsum, CC BY-NC-SA 4.0 | 45 | news text: its summary | ROUGE, chrF |
| translation | your lines, FLORES-200 | 204 | sentence: its translation | BLEU, chrF |

`downstream.tsv` has the configurations of each set, and the codes of `tasks.languages.table` that
mean one where its name is none. They come from the publishers' repositories and loaders. Names,
columns and splits of the sets on the hub were not compared with the hub itself. WikiANN's labels
are machine-made; XNLI's and PAWS-X's training texts are machine-translated.
"""

import csv
import dataclasses
import difflib
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import seqio

import gin
from common.errors import UserError
from tasks import corpora
from tasks.jobs import classification, text_metrics, text_to_text
from tasks.languages import table
from tasks.rows import Rows

_FILE = pathlib.Path(__file__).with_name("downstream.tsv")
SPLITS = ("train", "validation", "test")
_LISTED = 50  # configurations, up to which a message names all
TOPICS = (
    *("science/technology", "travel", "politics", "sports", "health", "entertainment", "geography"),
)
RELATIONS = {"0": "entailment", "1": "neutral", "2": "contradiction"}
ANSWERS = {"0": "no", "1": "yes"}


@dataclasses.dataclass(frozen=True)
class Job:
    """A benchmark: its name in `downstream.tsv`, how it is called, its data set on the hub.

    `columns` and `labels` are as in `tasks.rows.Rows`; `lengths` apply if a run sets none.
    """

    set: str
    title: str
    corpus: str = ""
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    metrics: Sequence[Any] = ()
    lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def spans_text(spans: Sequence[str]) -> str:
    """Return spans as one text, as `tasks.jobs.text_metrics.span_f1` reads them."""
    return text_metrics.SPANS.join(spans) or text_metrics.NO_SPANS


def _of_classes(classes: Sequence[str]) -> list:
    return [classification.metric(classes)]


JOBS: Mapping[str, Job] = {
    "topic": Job(
        "sib200",
        "SIB-200",
        "Davlan/sib200",
        {"inputs": "text", "targets": "category"},
        _of_classes(TOPICS),
        {"inputs": 256, "targets": 16},
    ),
    "entities": Job(
        "wikiann",
        "WikiANN",
        "unimelb-nlp/wikiann",
        {"inputs": "tokens", "targets": "spans"},
        ("span_f1",),
        {"inputs": 256, "targets": 128},
        {"lists": {"tokens": " ".join, "spans": spans_text}},
    ),
    "inference": Job(
        "xnli",
        "XNLI",
        "facebook/xnli",
        {"inputs": "premise: {premise} hypothesis: {hypothesis}", "targets": "label"},
        _of_classes([*RELATIONS.values()]),
        {"inputs": 256, "targets": 16},
        {"labels": {"targets": RELATIONS}},
    ),
    "paraphrase": Job(
        "pawsx",
        "PAWS-X",
        "google-research-datasets/paws-x",
        {"inputs": "sentence1: {sentence1} sentence2: {sentence2}", "targets": "label"},
        _of_classes([*ANSWERS.values()]),
        {"inputs": 256, "targets": 8},
        {"labels": {"targets": ANSWERS}},
    ),
    "summary": Job(
        "xlsum",
        "XL-Sum",
        "csebuetnlp/xlsum",
        {"inputs": "text", "targets": "summary"},
        ("rouge", "chrf"),
        {"inputs": 512, "targets": 128},
    ),
    "translation": Job(
        "flores200",
        "FLORES-200",
        metrics=("sacrebleu", "chrf"),
        lengths={"inputs": 256, "targets": 256},
    ),
}


@functools.cache
def configs(data_set: str) -> dict[str, tuple[str, ...]]:
    """Return the configurations of a set, and the other codes of each, by name."""
    with open(_FILE, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    if data_set == "flores200":  # whose sentences SIB-200 is made of, but for N'Ko
        found = configs("sib200")
        return {name: also for name, also in found.items() if name != "nqo_Nkoo"}
    return {
        row["config"]: tuple(row["languages"].split()) for row in rows if row["set"] == data_set
    }


def config(job: str, language: str) -> str:
    """Return what the job's data set calls a language, given by a code, a tag or its English name.

    Raises:
      UserError: there is no such job or language, or the data set lacks the language.
    """
    chosen, known = _job(job), configs(_job(job).set)
    names = {name.casefold(): name for name in known}
    names |= {other.casefold(): name for name, also in known.items() for other in also}
    wanted = language.strip().casefold()
    if wanted in names:
        return names[wanted]
    if wanted in table.ENGLISH:
        return next(names[name] for name in table.ENGLISH if name in names)
    found = table.find(language)
    for code in (found.code, found.tag, found.code.partition("_")[0]):
        if code.casefold() in names:
            return names[code.casefold()]
    raise UserError(
        f"{chosen.title}, the data of the job {job!r}, has no {found.name} ({found.code}): "
        f"{_offer(found.code, known)}"
    )


def _offer(code: str, known: Mapping[str, Any]) -> str:
    if len(known) <= _LISTED:
        return f"it has {', '.join(sorted(known))}"
    language = code.partition("_")[0]
    close = [name for name in known if name.partition("_")[0] == language]
    close = close or difflib.get_close_matches(code, known, n=3, cutoff=0.5)
    nearest = f", and the nearest are {', '.join(close)}" if close else ""
    return f"it has {len(known)} languages, which tasks/jobs/downstream.tsv lists{nearest}"


def _job(name: str) -> Job:
    if name not in JOBS:
        raise UserError(f"there is no job {name!r}: name one of {', '.join(JOBS)}")
    return JOBS[name]


def source(job: str, language: str) -> Rows:
    """Return the rows {"inputs", "targets"} of a job in a language; nothing is read yet.

    Raises:
      UserError: see `config`.
    """
    found = config(job, language)
    if job == "translation":
        return translation_files(found)
    chosen = _job(job)
    return Rows(
        chosen.corpus, found, columns=chosen.columns, splits=SPLITS, **dict(chosen.settings)
    )


@gin.configurable
def translation_files(
    code: str,
    into: str = "en",
    train: tuple[str, str] = ("data/parallel/train.source", "data/parallel/train.target"),
    flores: str = "data/flores200_dataset",
) -> Rows:
    """Return pairs of lines: your own to train on, FLORES-200's dev and devtest to measure by.

    Args:
      code: of the language to translate from, as FLORES-200 has it, such as ron_Latn.
      into: the language to translate to, named as for `config`.
      train: two files or patterns, sources and targets line by line.
      flores: the unpacked folder of FLORES-200, with dev/ron_Latn.dev and devtest/ron_Latn.devtest.

    Raises:
      UserError: FLORES-200 lacks the language, or both are the same.
    """
    target = config("translation", into)
    if target == code:
        raise UserError(
            f"tasks.jobs.downstream.translation_files.into is {into!r}, the language to "
            "translate from: set it to another"
        )
    parts = {"validation": ("dev", "dev"), "test": ("devtest", "devtest")}
    pairs = {
        split: (f"{flores}/{folder}/{code}.{end}", f"{flores}/{folder}/{target}.{end}")
        for split, (folder, end) in parts.items()
    }
    return Rows(parallel={"train": (train[0], train[1]), **pairs})


def add(
    job: str, language: str, vocabulary: corpora.Vocabulary, name: str | None = None
) -> seqio.Task:
    """Register the task of a job in a language, under the job's name if `name` is None.

    Raises:
      UserError: see `config`.
    """
    chosen, rows = _job(job), source(job, language)
    return text_to_text.add(
        name or job, rows, vocabulary, f"{job}: ", chosen.metrics, lengths=chosen.lengths
    )


_added: dict[str, tuple[str, seqio.Vocabulary]] = {}


@gin.configurable
def task(job: str, language: str, vocabulary: seqio.Vocabulary) -> str:
    """Register the task of a job, in the model's vocabulary, and return its name, `job`.

        MIXTURE_OR_TASK_NAME = @downstream.task()     # as gin/shared/downstream.gin has it

    The name is the same in all languages, so that a recipe can name its metrics.
    """
    if _added.get(job) != (language, vocabulary):
        if job in _added:
            seqio.TaskRegistry.remove(job)
        add(job, language, vocabulary)
        _added[job] = (language, vocabulary)
    return job
