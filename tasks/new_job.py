"""Write the task and the recipe that fine-tune a T5 on your own pairs or classes.

    python -m tasks.new_job en_cs --rows "/data/*.csv" --inputs en --targets cs --from runs/cs_tiny
    python -m tasks.new_job mood --rows mood.csv --inputs text --label mood --from google/mt5-small
    python -m tasks.new_job ro_en --inputs train.ro --targets train.en --from runs/ro_t5x_base

The first writes tasks/en_cs.py and gin/en_cs.gin, and prints the commands that follow. --rows is a
folder, files (CSV, TSV, JSONL, parquet) or a data set of the hub. --inputs and --targets name
columns, or templates such as "{title} {body}"; without --rows they are two text files, line by
line. With --label the targets are the classes in that column. --from is a run of your own, whose
newest checkpoint training starts from, or a T5, mT5, umT5 or ByT5 of Hugging Face. The lengths, the
steps and the rows held out for validation follow from the rows; rows with the same input, or with
the same text in the column --group, are all trained on or all held out. The files are yours to
change; existing ones are kept unless --overwrite is given.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import argparse
import collections
import itertools
import os
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import seqio

from common import arguments
from common.errors import ROOT, UserError, guarded
from common.printable import printable
from common.tables import OK, counted
from common.waiting import waiting
from tasks import vocabularies
from tasks.corpus import excerpt, held_out
from tasks.corpus.split import WAITING_S
from tasks.corpus.storage.names import absolute_path
from tasks.jobs import classification, summarization, text_to_text
from tasks.look import lines
from tasks.look.sample import Sample, draw
from tasks.rows import Rows
from tasks.scaffold import starting_model, validation
from tasks.scaffold.files import check_corpus, check_name, write
from tasks.scaffold.finetuning import METRICS, FinetuningRecipe, JobRows, PretrainedT5
from tasks.scaffold.starting_model import BYT5

LABELLED = 200_000  # rows whose labels, or inputs, are read
MOST_CLASSES = 1_000
MOST_HELD_OUT = 0.5  # share of the rows


def open_start(name: str, job: str) -> PretrainedT5:
    """Return the model of `--from`; a model of Hugging Face becomes runs/<job>_start.

    Raises:
      UserError: there is no such model, it is an encoder, or it has no vocabulary.
    """
    model = starting_model.open_model(name)
    if not model.family.generates:
        raise UserError(
            "--from",
            name,
            "which is an encoder (docs/finetune_encoder.py fine-tunes it once it is converted, see "
            "docs/encoders.md)",
            "name a T5 here",
        )
    if model.model_type:
        return _published(model, f"runs/{job}_start")
    folder = Path(model.name)
    bindings = starting_model.bindings_of(folder)
    network = bindings.of(model.family.configuration)
    network.pop("dropout_rate", None)
    run = from_root(folder)
    if model.family is BYT5:
        return PretrainedT5(model, run, vocabularies.byt5(), "", network)
    copy = folder / "vocabulary.model"
    file = from_root(copy) if copy.is_file() else bindings.first("sentencepiece_model_file")
    if not isinstance(file, str):
        raise UserError("--from", name, "which has no vocabulary.model", "name another run")
    extra_ids = bindings.of("SentencePieceVocabulary").get("extra_ids", 0)
    path = str(copy) if copy.is_file() else vocabularies.resolve(file)
    vocabulary = vocabularies.sentencepiece(path, extra_ids)
    return PretrainedT5(model, run, vocabulary, file, network)


def _published(model: starting_model.Model, folder: str) -> PretrainedT5:
    """Return a model of Hugging Face, which a command then makes a run of in `folder`."""
    if model.family is BYT5:
        return PretrainedT5(model, folder, vocabularies.byt5(), "", {})
    path = starting_model.file_of(model.name, "spiece.model")
    if path is None:
        raise UserError(
            "--from",
            model.name,
            "which has no spiece.model, whose pieces a T5 is trained with here",
            "name another model",
        )
    has_sentinels = vocabularies.sentinels_if_any(vocabularies.sentencepiece(str(path)))
    extra_ids = 0 if has_sentinels else starting_model.sentinels_of(model.name)
    vocabulary = vocabularies.sentencepiece(str(path), extra_ids)
    return PretrainedT5(model, folder, vocabulary, f"{folder}/vocabulary.model", {})


def from_root(path: Path) -> str:
    """Return a path from the repository's root, or an absolute one outside of it."""
    path = path.resolve()
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def open_rows(
    rows: str | None,
    inputs: str,
    targets: str | None,
    label: str | None,
    prefix: str,
    group: str | None = None,
) -> JobRows:
    """Return the rows of a job; see the flags.

    Raises:
      UserError: they cannot be read, lack a column, or the label is no class.
    """
    classes: tuple[str, ...] = ()
    if rows is None:
        files = (os.path.abspath(inputs), os.path.abspath(targets or ""))
        options: dict[str, Any] = {"parallel": {"train": files}}
    else:
        check_corpus(rows)
        corpus = absolute_path(rows)
        options = {"corpus": corpus, "columns": {"inputs": inputs, "targets": targets or label}}
        if label:
            classes = classes_of(corpus, inputs, label)
            # The user may call the classes otherwise.
            options["labels"] = {"targets": {name: name for name in classes}}
    if group:
        options["group"] = group
    source = Rows(**options)
    if shares := validation.held_out(source):
        options["held_out"] = dict(shares)
        check_held_out(source, shares, inputs, group)
    return JobRows(options, classes, prefix, repeated(source, is_held_out=bool(shares)))


def check_held_out(
    source: Rows, shares: Mapping[str, float], inputs: str, group: str | None
) -> None:
    """Raise UserError if shares of the inputs or groups hold out most of the rows."""
    if (share := held_share(source, shares)) > MOST_HELD_OUT:
        raise UserError(
            "--group" if group else "--inputs",
            group or inputs,
            f"whose texts are too few to share the rows out: {share:.0%} of them would be held out",
            "name a column of more texts with --group, or give rows for validation in a split of "
            "their own",
        )


def held_share(source: Rows, shares: Mapping[str, float]) -> float:
    """Return the share of the rows that shares of their inputs or groups hold out."""
    _, end = held_out.range_of(shares, "validation") or (0, 0)
    with waiting(f"counting the rows of {source.name} to hold out", WAITING_S):
        batches = (held_out.hashes(rows, source.column) < end for rows in source.texts("train"))
        rows = itertools.islice(itertools.chain.from_iterable(batches), LABELLED)
        return statistics.fmean(map(float, rows))


def repeated(source: Rows, is_held_out: bool) -> str:
    """Return a sentence on the rows with the input, or group, of others; "" if there are none.

    If nothing is held out, they are the rows for validation whose input 'train' has too.
    """
    with waiting(f"comparing the rows of {source.name}", WAITING_S):
        counts = keys_of(source, "train")
        if is_held_out:
            repeats = {key: n for key, n in counts.items() if n > 1}
            others, consequence = "others", "are all trained on or all held out"
        else:
            trained, counts = counts, keys_of(source, "validation")
            repeats = {key: n for key, n in counts.items() if key in trained}
            others, consequence = "rows of 'train'", "measure what was learned: leave them out"
    rows, column = counted(counts.total(), "row"), source.column.group
    text = f"of {rows} read have the same {column!r} as {others} and {consequence}"
    return f"{sum(repeats.values()):,} {text}" if repeats else ""


def keys_of(source: Rows, split: str) -> collections.Counter[int]:
    """Return how many of the first rows in a split's files have each input or group, by hash."""
    keys = (held_out.keys(documents, source.column) for documents in source.texts(split))
    first = itertools.islice(itertools.chain.from_iterable(keys), LABELLED)
    return collections.Counter(map(hash, first))


def classes_of(corpus: str, inputs: str, label: str) -> tuple[str, ...]:
    """Return the labels in a column, the most frequent first.

    Raises:
      UserError: they are no classes.
    """
    # A template makes texts of numbers too.
    column = label if any(sign in label for sign in "{}!:") else f"{{{label}}}"
    source = Rows(corpus, columns={"inputs": inputs, "targets": column})
    source.peek("train")
    documents = excerpt.documents(source, "train", order=source.order("train"))
    labels = (row["targets"].strip() for row in itertools.islice(documents, LABELLED))
    counts = collections.Counter(labels)
    total = counts.total()
    if len(counts) < 2 or len(counts) > min(total / 2, MOST_CLASSES):
        raise UserError(
            "--label",
            label,
            f"which has {counted(len(counts), 'label')} in {counted(total, 'row')}",
            "name the column of two or more classes that have several rows each, or --targets if "
            "it has texts to be written",
        )
    return tuple(name for name, _ in counts.most_common())


def look_at(name: str, start: PretrainedT5, rows: JobRows) -> Sample:
    """Return a sample of the rows, as the model's vocabulary writes it; print warnings.

    Raises:
      UserError: the rows cannot be read, or the vocabulary cannot write their targets.
    """
    shared = (name, rows.source, start.vocabulary)
    if rows.classes:
        classification.add(*shared, prefix=rows.prefix, cedilla=start.lacks_cedillas)
    else:
        text_to_text.add(*shared, rows.prefix, METRICS, cedilla=start.lacks_cedillas)
    try:
        sample = draw(seqio.TaskRegistry.get(name), "train")
    finally:
        seqio.TaskRegistry.remove(name)
    results = {result.check: result for result in lines.table(sample)}
    if (result := results["targets"]).verdict != OK:
        raise UserError(
            "--from",
            start.model.name,
            f"whose vocabulary lacks characters of the targets: {result.figure}",
            "name a model that has them, or give it pieces for them with "
            "`python -m vocabulary.extend`",
        )
    for result in (results[check] for check in ("records", "characters", "unknown pieces")):
        if result.verdict != OK:
            print(printable(f"warning: {result.check}: {result.figure}"))
    return sample


def check_free(name: str) -> None:
    """Raise UserError if a module, recipe or task that is no user's job has the name."""
    files = [f"tasks/{name}.py", f"gin/{name}.gin"]
    existing = [file for file in files if (ROOT / file).exists()]
    if len(existing) == 1 or (not existing and name in seqio.TaskRegistry.names()):
        owner = existing[0] if existing else "a task of this repository"
        raise UserError("NAME", name, f"which {owner} has", "give another one")


@guarded
def main(argv: list[str] | None = None) -> None:
    """Write the task and the recipe of a job."""
    parser = arguments.parser("python -m tasks.new_job", __doc__)
    add = parser.add_argument
    add("name", metavar="NAME", type=arguments.text, help="of the task, recipe and run: en_cs")
    about = "a folder, files, or a hub name; without it --inputs and --targets are text files"
    add("--rows", type=arguments.text, help=about)
    about = "the column that the model reads, or a template: '{title} {body}'"
    add("--inputs", type=arguments.text, required=True, help=about)
    add("--targets", type=arguments.text, help="the column that it writes, or a template")
    add("--label", type=arguments.text, help="instead of --targets: the column of the class")
    about = "the model: a run, or a T5 of Hugging Face (a folder or a hub name)"
    add("--from", dest="start", metavar="MODEL", type=arguments.text, required=True, help=about)
    about = "what precedes every input, such as 'translate to Czech: '"
    add("--prefix", type=arguments.text, help=about)
    about = "rows with the same text here are on one side of validation; default the inputs"
    add("--group", type=arguments.text, help=about)
    add("--overwrite", action="store_true", help="replace the files if they exist")
    flags: argparse.Namespace = parser.parse_args(argv)
    check_name(flags.name, "NAME")
    if (flags.targets is None) == (flags.label is None):
        raise UserError(to_set="give --targets, texts to write, or --label, a class, and not both")
    if flags.label and not flags.rows:
        raise UserError("--label", why="is a column", to_set="give --rows, the files that have it")
    check_free(flags.name)
    start = open_start(flags.start, flags.name)
    texts = (flags.inputs, flags.targets, flags.label)
    rows = open_rows(flags.rows, *texts, flags.prefix or "", flags.group)
    recipe = FinetuningRecipe(flags.name, start, rows, look_at(flags.name, start, rows))
    if recipe.held_out != rows.arguments.get("held_out", {}):
        check_held_out(rows.source, recipe.held_out, flags.inputs, flags.group)
    print(printable(recipe.report(write(recipe.files(), ROOT, flags.overwrite))))


# Whose tasks have names that are taken.
assert summarization


if __name__ == "__main__":
    main()
