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

`downstream.tsv` lists the configurations of each data set. If `tasks.languages.table` has other
codes for the language of one, the file gives them too. The names of the configurations come from
the publishers' repositories and loaders.
Names, columns and splits were not compared with the hub itself. WikiANN's labels are machine-made;
XNLI's and PAWS-X's training texts are machine-translated.
"""

import csv
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import seqio

import gin
from common.errors import UserError, nearest
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


class Job(NamedTuple):
    """A benchmark: its title, its data set on the hub, and what its task is made with.

    `rows` are arguments of `tasks.rows.Rows`. A run that sets no lengths has `lengths`.
    """

    title: str
    metrics: Sequence[Any]
    lengths: Mapping[str, int]
    corpus: str = ""
    rows: Mapping[str, Any] = {}


def spans_text(spans: Sequence[str]) -> str:
    """Return spans as one text, as `tasks.jobs.text_metrics.span_f1` reads them."""
    return text_metrics.SPANS.join(spans) or text_metrics.NO_SPANS


JOBS: Mapping[str, Job] = {
    "topic": Job(
        "SIB-200",
        [classification.metric(TOPICS)],
        {"inputs": 256, "targets": 32},
        "Davlan/sib200",
        {
            "columns": {"inputs": "text", "targets": "category"},
            "labels": {"targets": {topic: topic for topic in TOPICS}},
        },
    ),
    "entities": Job(
        "WikiANN",
        ["span_f1"],
        {"inputs": 256, "targets": 128},
        "unimelb-nlp/wikiann",
        {
            "columns": {"inputs": "tokens", "targets": "spans"},
            "lists": {"tokens": " ".join, "spans": spans_text},
        },
    ),
    "inference": Job(
        "XNLI",
        [classification.metric([*RELATIONS.values()])],
        {"inputs": 256, "targets": 16},
        "facebook/xnli",
        {
            "columns": {
                "inputs": "premise: {premise} hypothesis: {hypothesis}",
                "targets": "label",
            },
            "labels": {"targets": RELATIONS},
        },
    ),
    "paraphrase": Job(
        "PAWS-X",
        [classification.metric([*ANSWERS.values()])],
        {"inputs": 256, "targets": 8},
        "google-research-datasets/paws-x",
        {
            "columns": {
                "inputs": "sentence1: {sentence1} sentence2: {sentence2}",
                "targets": "label",
            },
            "labels": {"targets": ANSWERS},
        },
    ),
    "summary": Job(
        "XL-Sum",
        ["rouge", "chrf"],
        {"inputs": 512, "targets": 128},
        "csebuetnlp/xlsum",
        {"columns": {"inputs": "text", "targets": "summary"}},
    ),
    # Its rows are files of the user's: see `translation_files`.
    "translation": Job("FLORES-200", ["sacrebleu", "chrf"], {"inputs": 256, "targets": 256}),
}


@functools.cache
def configs(job: str) -> dict[str, tuple[str, ...]]:
    """Return the configurations of a job's data set, and the other codes of each, by name."""
    if job == "translation":  # SIB-200 is made of FLORES-200's sentences, but for N'Ko
        return {name: codes for name, codes in configs("topic").items() if name != "nqo_Nkoo"}
    with open(_FILE, encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["job"] == job]
    return {row["config"]: tuple(row["languages"].split()) for row in rows}


def config(job: str, language: str) -> str:
    """Return what a job's data set calls a language, given by a code, a tag or its English name.

    Raises:
      UserError: there is no such job or language, or the data set lacks the language.
    """
    if job not in JOBS:
        raise UserError("job", job, "which there is not", f"name one of {', '.join(JOBS)}")
    names = {name.casefold(): name for name in configs(job)}
    names |= {code.casefold(): name for name, codes in configs(job).items() for code in codes}
    codes, called = [language.strip().casefold()], "English"
    if codes[0] in table.ENGLISH:
        codes += table.ENGLISH
    elif codes[0] not in names:
        entry = table.find(language)
        codes += [entry.code, entry.tag, entry.code.partition("_")[0]]
        called = f"{entry.name}, {entry.code}"
    for code in codes:
        if code.casefold() in names:
            return names[code.casefold()]
    data = f"{JOBS[job].title}, the data of the job {job!r}"
    raise UserError(
        "language", language, f"which {data}, lacks ({called}): {_offer(codes[-1], job)}"
    )


def _offer(code: str, job: str) -> str:
    """Return which languages a data set has, or which is nearest to a code."""
    names = sorted(configs(job))
    if len(names) <= _LISTED:
        return f"it has {', '.join(names)}"
    same = [name for name in names if name.partition("_")[0] == code]
    close = f"; of this language {', '.join(same)}" if same else nearest(code, names)
    return f"it has {len(names)} languages, which tasks/jobs/downstream.tsv lists{close}"


def source(job: str, language: str) -> Rows:
    """Return the rows {"inputs", "targets"} of a job in a language; nothing is read yet.

    Raises:
      UserError: see `config`.
    """
    name = config(job, language)
    if job == "translation":
        return translation_files(name)
    return Rows(JOBS[job].corpus, name, splits=SPLITS, **JOBS[job].rows)


@gin.configurable
def translation_files(
    code: str,
    into: str = "en",
    train: tuple[str, str] = ("data/parallel/train.source", "data/parallel/train.target"),
    flores: str = "data/flores200_dataset",
) -> Rows:
    """Return pairs of lines: your own to train on, FLORES-200's dev and devtest to measure by.

    Args:
      code: FLORES-200's code of the language to translate from, such as ron_Latn.
      into: the language to translate to, named as for `config`.
      train: two files or patterns, sources and targets line by line.
      flores: the unpacked folder of FLORES-200, with dev/ron_Latn.dev and devtest/ron_Latn.devtest.

    Raises:
      UserError: FLORES-200 lacks the language, or both are the same.
    """
    target = config("translation", into)
    if target == code:
        setting = "tasks.jobs.downstream.translation_files.into"
        raise UserError(setting, into, "the language to translate from", "set it to another")
    measured = {
        split: (f"{flores}/{folder}/{code}.{folder}", f"{flores}/{folder}/{target}.{folder}")
        for split, folder in (("validation", "dev"), ("test", "devtest"))
    }
    return Rows(parallel={"train": (train[0], train[1]), **measured})


def add(
    job: str, language: str, vocabulary: corpora.Vocabulary, name: str | None = None
) -> seqio.Task:
    """Register the task of a job in a language, under the job's name if `name` is None.

    Raises:
      UserError: see `config`.
    """
    rows = source(job, language)
    return text_to_text.add(
        name or job, rows, vocabulary, f"{job}: ", JOBS[job].metrics, lengths=JOBS[job].lengths
    )


_registered: dict[str, tuple[str, seqio.Vocabulary]] = {}


@gin.configurable
def task(job: str, language: str, vocabulary: seqio.Vocabulary) -> str:
    """Register the task of a job, in the model's vocabulary, and return its name, `job`.

        MIXTURE_OR_TASK_NAME = @downstream.task()     # as gin/shared/downstream.gin has it

    The name is the same in all languages, so that a recipe can name its metrics.
    """
    if _registered.get(job) != (language, vocabulary):
        if job in _registered:
            seqio.TaskRegistry.remove(job)
        add(job, language, vocabulary)
        _registered[job] = (language, vocabulary)
    return job
