"""Write the task and the recipe that fine-tune a T5 on your own pairs or classes.

    python -m tasks.new_job en_cs --rows "/data/*.csv" --inputs en --targets cs --from runs/cs_tiny
    python -m tasks.new_job mood --rows mood.csv --inputs text --label mood --from google/mt5-small
    python -m tasks.new_job ro_en --inputs train.ro --targets train.en --from runs/ro_t5x_base

The first writes tasks/en_cs.py and gin/en_cs.gin, and prints the commands that follow. --rows is a
folder, files (CSV, TSV, JSONL, parquet) or a data set of the hub. --inputs and --targets name
columns, or templates such as "{title} {body}"; without --rows they are two text files, line by
line. With --label the targets are the classes in that column. --from is a run of your own, whose
newest checkpoint training starts from, or a T5, mT5, umT5 or ByT5 of Hugging Face. The lengths, the
steps and the rows held out for validation follow from the rows. The files are yours to change;
existing ones are kept unless --overwrite is given.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import argparse
import collections
import itertools
import os
import shlex
from pathlib import Path
from typing import NamedTuple

import seqio

from common import arguments
from common.errors import ROOT, UserError, guarded
from common.tables import OK, counted
from tasks import vocabularies
from tasks.corpus.storage.names import given
from tasks.jobs import classification, summarization, text_to_text
from tasks.look import lines, sample
from tasks.rows import Rows
from tasks.scaffold import files as new_files
from tasks.scaffold import starting_model
from tasks.scaffold.files import quoted
from tasks.scaffold.starting_model import BYT5, Model

METRICS = ("sacrebleu", "chrf")
EPOCHS = 10  # the best checkpoint is kept, so that too many do no harm
STEPS = (100, 20_000)
BATCHES = ((100_000, 128), (2_000, 32), (0, 16))  # by rows
UNKNOWN_ROWS = 100_000  # of a data set whose size is unknown
LENGTHS = (64, 512)  # tokens: short rows hold several pairs each, and longer texts are cut
HELD_OUT, SMALL = 50, 100  # rows for validation, of more rows than `SMALL`
HELD_OUT_OF_A_CLASS = 20
MOST_HELD_OUT = 0.2
LABELLED = 200_000  # rows whose labels are read
MOST_CLASSES = 1_000
NARROW = 512  # emb_dim below which a model learns at `RATES` of the first kind, without dropout
RATES = (0.01, 0.001)

TASK = '''"""{about}."""

from tasks import vocabularies
from tasks.jobs import {job}
from tasks.rows import Rows

{job}.add(
    "{name}",
    Rows(
{rows}
    ),
    {vocabulary},
{settings}
)
'''
RECIPE = """\
# {about}.
# Command: bash launch/train.sh {name}     Cost and loss to expect: not yet measured.
from __gin__ import dynamic_registration
import seqio
import tasks.{name}
{imports}from t5x import utils
from t5x.examples.t5 import network
include '{include}'
{network}include 't5x/configs/runs/{run}.gin'
include 'gin/shared/run.gin'

MIXTURE_OR_TASK_NAME = '{name}'
TASK_FEATURE_LENGTHS = {lengths}
{classes}INITIAL_CHECKPOINT_PATH = {checkpoint!r}
TRAIN_STEPS = {last}  # the first {step} are the model's
BATCH_SIZE = {batch}
EVAL_PERIOD = {period}
EVALUATOR_NUM_EXAMPLES = 1024  # of the validation split
DROPOUT_RATE = {dropout}
network.T5Config.dropout_rate = %DROPOUT_RATE
{bindings}
utils.create_learning_rate_scheduler.base_learning_rate = {rate}
utils.SaveCheckpointConfig.period = {period}
KEEP_BEST = 1
BEST_METRIC = 'inference_eval/{name}/{metric}'
"""
OF_CLASSES = """\
CLASS_IDS = @tasks.jobs.classification.ids_of()
tasks.jobs.classification.ids_of.task = %MIXTURE_OR_TASK_NAME
"""


class Start(NamedTuple):
    """The model that a job starts from: its folder as a run, and its vocabulary.

    `vocabulary` is what it is now, and `file` where the run has it, "" for bytes. `network` are the
    sizes that a run of one's own binds, none of a model that is brought in first.
    """

    model: Model
    folder: str
    vocabulary: seqio.Vocabulary
    file: str
    network: dict[str, object]

    @property
    def extra_ids(self) -> int:
        """The sentinels behind the pieces or bytes."""
        return getattr(self.vocabulary, "extra_ids", 0)

    @property
    def python(self) -> str:
        """The vocabulary in Python."""
        if not self.file:
            return "vocabularies.byt5()"
        more = f", extra_ids={self.extra_ids}" if self.extra_ids else ""
        return f"vocabularies.sentencepiece({quoted(self.file)}{more})"

    @property
    def bindings(self) -> str:
        """The vocabulary and the sizes in gin."""
        if self.file:
            of_seqio = "seqio.SentencePieceVocabulary"
            lines = [f"{of_seqio}.sentencepiece_model_file = {self.file!r}"]
        else:
            of_seqio, lines = "seqio.ByteVocabulary", []
        lines.append(f"{of_seqio}.extra_ids = {self.extra_ids}")
        lines += [f"network.T5Config.{name} = {value!r}" for name, value in self.network.items()]
        return "\n".join(lines)


class Texts(NamedTuple):
    """The rows of a job: the arguments of their `Rows`, and the classes, none of texts."""

    settings: dict[str, object]
    classes: tuple[str, ...]
    prefix: str

    @property
    def source(self) -> Rows:
        """The rows themselves."""
        return Rows(**self.settings)  # type: ignore[arg-type]


class Job(NamedTuple):
    """A job of this name, and what was found of its rows."""

    name: str
    start: Start
    texts: Texts
    found: sample.Sample

    @property
    def rows(self) -> int:
        """About how many rows there are."""
        seen = self.found.overview
        return int((seen and seen.documents) or self.found.corpus_documents or UNKNOWN_ROWS)

    @property
    def lengths(self) -> dict[str, int]:
        """Tokens with EOS that hold nearly all texts, in multiples of 16."""
        least, most = LENGTHS
        words = self.start.vocabulary
        more = {"inputs": len(words.encode(self.texts.prefix)) + 1, "targets": 1}
        made = {}
        for side, sizes in self.found.histograms.items():
            wanted = min(sizes.longest, 2 * sizes.most_of) + more[side]
            made[side] = min(max(-(-wanted // 16) * 16, least), most)
        return {**made, "targets": 2} if self.texts.classes else made

    @property
    def batch(self) -> int:
        """Rows of a step."""
        return next(batch for least, batch in BATCHES if self.rows >= least)

    @property
    def epochs_of_a_step(self) -> float:
        """What share of the rows a step reads: packed rows hold several."""
        each = self.found.counts["pieces"] / max(len(self.found.documents), 1) + 2
        fit = 1.0 if self.texts.classes else max(sum(self.lengths.values()) / each, 1.0)
        return self.batch * fit / self.rows

    @property
    def steps(self) -> int:
        """The steps of about `EPOCHS` epochs, within limits."""
        least, most = STEPS
        return int(min(max(round(EPOCHS / self.epochs_of_a_step, -2), least), most))

    @property
    def held_out(self) -> dict[str, float]:
        """The share held out where the usual one would be few rows, else {}."""
        shares = self.texts.source.shares("train")
        wanted = max(HELD_OUT, HELD_OUT_OF_A_CLASS * len(self.texts.classes or ()))
        if not shares or self.rows <= SMALL or self.rows * min(shares.values()) >= wanted:
            return {}
        return {"validation": min(round(wanted / self.rows, 3), MOST_HELD_OUT)}

    def files(self) -> dict[str, str]:
        """Return the texts of the files to write, by path from the repository's root."""
        start, classes = self.start, self.texts.classes
        name, step = self.name, start.model.step
        settings = [f"lengths={_python(self.lengths)}"]
        settings += [] if classes else [f"metrics={_python(METRICS)}"]
        settings += [f"prefix={quoted(self.texts.prefix)}"] * bool(self.texts.prefix)
        rows = self.texts.settings | ({"held_out": self.held_out} if self.held_out else {})
        is_narrow = start.network.get("emb_dim", NARROW) < NARROW  # type: ignore[operator]
        brought_in = f"include '{start.folder}/config.gin'  # its sizes\n"
        filled: dict[str, object] = {
            "about": f"{name}: {start.model.name} fine-tuned on own "
            f"{'classes' if classes else 'pairs'}",
            "name": name,
            "job": "classification" if classes else "text_to_text",
            "rows": "\n".join(f"        {key}={_python(value)}," for key, value in rows.items()),
            "vocabulary": start.python,
            "settings": "\n".join(f"    {line}," for line in settings),
            "imports": "import tasks.jobs.classification\n" if classes else "",
            "include": start.model.family.include,
            "network": brought_in if start.model.model_type else "",
            "run": "classify" if classes else "finetune",
            "lengths": self.lengths,
            "classes": OF_CLASSES if classes else "",
            "checkpoint": f"{start.folder}/checkpoint_{step}",
            "step": f"{step:,}",
            "last": step + self.steps,
            "batch": self.batch,
            "period": self.steps // 5,
            "dropout": 0.0 if is_narrow else 0.1,
            "rate": RATES[0] if is_narrow else RATES[1],
            "bindings": start.bindings,
            "metric": "mean_f1" if classes else "chrf",
        }
        return {
            f"tasks/{name}.py": TASK.format(**filled),
            f"gin/{name}.gin": RECIPE.format(**filled),
        }

    def commands(self) -> list[str]:
        """Return the commands that follow, in their order."""
        name, model = self.name, self.start.model
        run = f"runs/{name}"
        brought_in = f"python -m convert from_hf {shlex.quote(model.name)} {self.start.folder}"
        kind = f" --model_type {model.model_type}" if model.model_type else ""
        return [
            *[brought_in] * bool(model.model_type),
            f"bash launch/train.sh {name} --dry_run",
            f"bash launch/train.sh {name}",
            f"python -m report {run}",
            *[f"python -m report.misclassified {run}"] * bool(self.texts.classes),
            f"python -m t5x.infer --gin_file=gin/{name}.gin "
            "--gin_file=t5x/configs/runs/infer.gin \\\n"
            f"    --gin.CHECKPOINT_PATH=\"'{run}'\" "
            "--gin.utils.RestoreCheckpointConfig.mode=\"'best'\" \\\n"
            "    --gin.infer_script.infer.input_file=\"'in.txt'\" "
            f"--gin.INFER_OUTPUT_DIR=\"'{run}/out'\"",
            f"bash convert/convert.sh {run}{kind}",
        ]

    def report(self, written: list[str]) -> str:
        """Return what was found and written, and the commands that follow."""
        classes, found = self.texts.classes, self.found
        lines = [f"{found.corpus}: {found.overview}"]
        if self.held_out:
            share = self.held_out["validation"]
            lines[0] = f"{lines[0].partition(';')[0]}; {share:.1%} held out as 'validation'"
        if classes:
            lines.append(f"{len(classes)} classes: {_some(classes)}")
        lines += [f"the first {side}: {_short(text)}" for side, text in found.documents[0].items()]
        for side, sizes in found.histograms.items():
            if side == "inputs" or not classes:
                lines.append(
                    f"{side} of at most {self.lengths[side]} tokens are kept whole: half have "
                    f"{sizes.median} or fewer, 95 % {sizes.most_of}, the longest {sizes.longest}"
                )
        epochs = counted(self.steps * self.epochs_of_a_step, "epoch", ".2g")
        lines.append(f"{self.steps:,} steps of {self.batch} rows are about {epochs}")
        lines += [f"wrote {path}" for path in written]
        first = "bring the model in, " if self.start.model.model_type else ""
        lines += [
            "",
            f"Now {first}check all, train, look at the run, use its best checkpoint on the lines "
            "of a file, and convert it:",
            *(f"  {command}" for command in self.commands()),
            f"runs/{self.name}/generated_predictions.jsonl then has the best checkpoint's answers "
            "on the validation rows.",
        ]
        return "\n".join(lines)


def open_start(name: str, job: str) -> Start:
    """Return the model of `--from`; a model of Hugging Face becomes runs/<job>_start.

    Raises:
      UserError: there is no such model, it is an encoder, or it has no vocabulary.
    """
    model = starting_model.open_model(name)
    if model.family.configuration != "T5Config":
        raise UserError(
            f"--from {name} is an encoder, which docs/finetune_encoder.py fine-tunes once it is "
            "converted (docs/encoders.md): name a T5 here"
        )
    folder = f"runs/{job}_start" if model.model_type else _here(model.name)
    network = {}
    if not model.model_type:
        bindings = starting_model.bindings_of(Path(model.name))
        network = bindings.of("T5Config")
        network.pop("dropout_rate", None)
    if model.family is BYT5:
        return Start(model, folder, vocabularies.byt5(), "", network)
    if model.model_type:
        found = starting_model.file_of(model.name, "spiece.model")
        if found is None:
            raise UserError(
                f"--from {name} has no spiece.model, whose pieces a T5 is trained with here: name "
                "another model"
            )
        file = f"{folder}/vocabulary.model"
        is_complete = vocabularies.sentinels_if_any(vocabularies.sentencepiece(str(found)))
        extra_ids = 0 if is_complete else starting_model.sentinels_of(model.name)
    else:
        own = Path(model.name) / "vocabulary.model"
        file = _here(str(own)) if own.is_file() else bindings.first("sentencepiece_model_file")
        if not isinstance(file, str):
            raise UserError(f"--from {name} has no vocabulary.model: name another run")
        found = own if own.is_file() else Path(vocabularies.resolve(file))
        extra_ids = bindings.of("SentencePieceVocabulary").get("extra_ids", 0)
    vocabulary = vocabularies.sentencepiece(str(found), extra_ids)
    return Start(model, folder, vocabulary, file, network)


def _here(path: str) -> str:
    """Return a path from the repository's root, or an absolute one outside of it."""
    found = Path(path).resolve()
    return str(found.relative_to(ROOT) if found.is_relative_to(ROOT) else found)


def open_texts(
    rows: str | None, inputs: str, targets: str | None, label: str | None, prefix: str
) -> Texts:
    """Return the rows of a job; see the flags.

    Raises:
      UserError: they cannot be read, lack a column, or the label is no class.
    """
    if rows is None:
        pair = (os.path.abspath(inputs), os.path.abspath(targets or ""))
        return Texts({"parallel": {"train": pair}}, (), prefix)
    corpus = given(rows)
    columns = {"inputs": inputs, "targets": targets or label}
    classes = () if targets else _classes(corpus, inputs, str(label))
    settings: dict[str, object] = {"corpus": corpus, "columns": columns}
    if classes:  # which the user may call otherwise
        settings["labels"] = {"targets": {name: name for name in classes}}
    return Texts(settings, classes, prefix)


def _classes(corpus: str, inputs: str, label: str) -> tuple[str, ...]:
    """Return the labels in a column, the most frequent first; raise UserError if they are none."""
    # A template makes texts of numbers too.
    column = label if any(c in label for c in "{}!:") else f"{{{label}}}"
    source = Rows(corpus, columns={"inputs": inputs, "targets": column})
    source.peek("train")
    texts = itertools.chain.from_iterable(source.texts("train"))
    read = itertools.islice(texts, LABELLED)
    counts = collections.Counter(row[1].decode().strip() for row in read)
    total = counts.total()
    if len(counts) < 2 or len(counts) > min(total / 2, MOST_CLASSES):
        raise UserError(
            f"--label {label} has {counted(len(counts), 'label')} in "
            f"{counted(total, 'row')}: name the column of two or more classes that have several "
            "rows each, or --targets if it has texts to be written"
        )
    return tuple(name for name, _ in counts.most_common())


def look(name: str, start: Start, texts: Texts) -> sample.Sample:
    """Return what a sample of the rows shows with the model's vocabulary.

    Raises:
      UserError: the rows cannot be read, or the vocabulary cannot write their targets.
    """
    if texts.classes:
        classification.add(name, texts.source, start.vocabulary, prefix=texts.prefix)
    else:
        text_to_text.add(name, texts.source, start.vocabulary, texts.prefix, METRICS)
    try:
        found = sample.draw(seqio.TaskRegistry.get(name), "train")
    finally:
        seqio.TaskRegistry.remove(name)
    rows = {row.check: row for row in lines.table(found)}
    if (row := rows["targets"]).verdict != OK:
        raise UserError(
            f"the vocabulary of --from {start.model.name} lacks characters of the targets: "
            f"{row.figure}: name a model that has them, or give it pieces for them with "
            "`python -m vocabulary.extend`"
        )
    for row in (rows[name] for name in ("records", "characters", "unknown pieces")):
        if row.verdict != OK:
            print(f"warning: {row.check}: {row.figure}")
    return found


def check_free(name: str) -> None:
    """Raise UserError if a name is taken by a module, recipe or task that is no user's job."""
    files = [f"tasks/{name}.py", f"gin/{name}.gin"]
    there = [file for file in files if (ROOT / file).exists()]
    if len(there) == 1 or (not there and name in seqio.TaskRegistry.names()):
        raise UserError(
            f"NAME is {name!r}, which {there[0] if there else 'a task of this repository'} has: "
            "give another one"
        )


def _python(value: object, indent: str = " " * 8) -> str:
    """Return plain data as Python with double quotes, long dicts in lines."""
    if isinstance(value, dict):
        deeper = indent + " " * 4
        items = [f"{_python(k)}: {_python(v, deeper)}" for k, v in value.items()]
        if any("\n" in each for each in items) or sum(map(len, items)) > 60:
            return "".join(["{\n", *(f"{deeper}{each},\n" for each in items), f"{indent}}}"])
        return f"{{{', '.join(items)}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_python, value))})"
    return quoted(value) if isinstance(value, str) else repr(value)


def _short(text: str, most: int = 80) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]} …"


def _some(names: tuple[str, ...], most: int = 10) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


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
    add("--overwrite", action="store_true", help="replace the files if they exist")
    flags: argparse.Namespace = parser.parse_args(argv)
    new_files.check_name(flags.name, "NAME")
    if (flags.targets is None) == (flags.label is None):
        raise UserError("give --targets, texts to write, or --label, a class, and not both")
    if flags.label and not flags.rows:
        raise UserError("--label is a column: give --rows, the files that have it")
    check_free(flags.name)
    start = open_start(flags.start, flags.name)
    texts = open_texts(flags.rows, flags.inputs, flags.targets, flags.label, flags.prefix or "")
    job = Job(flags.name, start, texts, look(flags.name, start, texts))
    print(job.report(new_files.write(job.files(), ROOT, flags.overwrite)))


# Whose tasks have names that are taken.
assert summarization


if __name__ == "__main__":
    main()
