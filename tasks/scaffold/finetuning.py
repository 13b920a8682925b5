"""A T5 fine-tuned on a user's rows: `python -m tasks.new_job NAME --rows FILES --from MODEL`.

    recipe = FinetuningRecipe("mood", model, rows, sample)
    recipe.files()                        # tasks/ and gin/, by path
    print(recipe.report(written))         # the commands that follow

The lengths, the steps and the rows held out for validation follow from a sample of the rows.
"""

import re
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

import seqio

from common.new_files import commit_command
from common.tables import counted, first_names
from tasks.corpus.storage.names import portable_path
from tasks.look.sample import Sample
from tasks.rows import Rows
from tasks.scaffold.files import docstring, fill, python, quoted
from tasks.scaffold.starting_model import BYT5, T5, Model

METRICS = ("sacrebleu", "chrf")
EPOCHS = 10  # the best checkpoint is kept, so that too many do no harm
STEPS = (100, 20_000)
BATCHES = ((100_000, 128), (2_000, 32), (0, 16))  # (least rows, batch size)
UNKNOWN_ROWS = 100_000  # assumed rows of a data set of unknown size
LENGTHS = (64, 512)  # tokens: short rows hold several pairs each, and longer texts are cut
# More than the usual share of a small corpus is held out, so that these many rows are.
HELD_OUT, HELD_OUT_PER_CLASS = 50, 20
MOST_HELD_OUT = 0.2  # share of the rows
SMALL = 100  # rows; of so few no more than the usual share is held out
NARROW = 512  # emb_dim below which a model learns at the first of `RATES`, without dropout
RATES = (0.01, 0.001)
CLASS_IDS = """\
CLASS_IDS = @tasks.jobs.classification.ids_of()
tasks.jobs.classification.ids_of.task = %MIXTURE_OR_TASK_NAME"""


class PretrainedT5(NamedTuple):
    """The T5 that a job starts from: `folder` is its run, which a command may have to make first.

    `vocabulary_file` is where that run has the vocabulary, "" for bytes. `network` are the settings
    of the network in a run of the user's; a run made of published weights has a gin file of them.
    """

    model: Model
    folder: str
    vocabulary: seqio.Vocabulary
    vocabulary_file: str
    network: dict[str, Any]

    @property
    def extra_ids(self) -> int:
        """The sentinels after the pieces or bytes."""
        return getattr(self.vocabulary, "extra_ids", 0)

    @property
    def is_narrow(self) -> bool:
        """Whether it is so small that it needs a high learning rate and no dropout."""
        return self.network.get("emb_dim", NARROW) < NARROW

    @property
    def lacks_cedillas(self) -> bool:
        """Whether it has Romanian ș but not ş, as one that was trained with cedilla=True."""
        is_unknown = lambda letter: self.vocabulary.unk_id in self.vocabulary.encode(letter)
        return is_unknown("ş") and not is_unknown("ș")

    @property
    def vocabulary_code(self) -> str:
        """Python that makes the vocabulary."""
        if not self.vocabulary_file:
            return "vocabularies.byt5()"
        sentinels = f", extra_ids={self.extra_ids}" if self.extra_ids else ""
        file = f"vocabularies.of_recipe({quoted(self.vocabulary_file)})"
        return f"vocabularies.sentencepiece({file}{sentinels})"

    @property
    def bindings(self) -> list[str]:
        """Lines of gin that set the vocabulary and the network."""
        kind, lines = "ByteVocabulary", []
        if self.vocabulary_file:
            kind = "SentencePieceVocabulary"
            lines = [
                f"VOCABULARY_FILE = {self.vocabulary_file!r}",
                f"seqio.{kind}.sentencepiece_model_file = %VOCABULARY_FILE",
                "tasks.vocabularies.task_file.path = %VOCABULARY_FILE",
            ]
        lines.append(f"seqio.{kind}.extra_ids = {self.extra_ids}")
        owner = f"network.{self.model.family.configuration}"
        return lines + [f"{owner}.{name} = {value!r}" for name, value in self.network.items()]


class JobRows(NamedTuple):
    """The rows of a job: the arguments of their `Rows`, and the classes, if they have labels.

    `repeated` is a sentence on the rows with the same input, "" if there are none.
    """

    arguments: dict[str, Any]
    classes: tuple[str, ...]
    prefix: str
    repeated: str = ""

    @property
    def source(self) -> Rows:
        """The corpus source of the rows."""
        return Rows(**self.arguments)


class FinetuningRecipe(NamedTuple):
    """A task and a recipe, both called `name`, that fine-tune a T5 on rows."""

    name: str
    start: PretrainedT5
    rows: JobRows
    sample: Sample

    @property
    def number_of_rows(self) -> int:
        """About how many rows there are."""
        overview = self.sample.overview
        documents = (overview and overview.documents) or self.sample.corpus_documents
        return int(documents or UNKNOWN_ROWS)

    @property
    def lengths(self) -> dict[str, int]:
        """The tokens of inputs and targets, EOS included, that hold nearly all of the texts."""
        least, most = LENGTHS
        added = {"inputs": len(self.start.vocabulary.encode(self.rows.prefix)) + 1, "targets": 1}
        lengths = {}
        for side, sizes in self.sample.histograms.items():
            needed = min(sizes.longest, 2 * sizes.most_of) + added[side]
            lengths[side] = min(max(-(-needed // 16) * 16, least), most)
        return {**lengths, "targets": 2} if self.rows.classes else lengths

    @property
    def batch(self) -> int:
        """The rows of a step."""
        return next(batch for least, batch in BATCHES if self.number_of_rows >= least)

    @property
    def epochs_per_step(self) -> float:
        """The share of the user's rows that a step reads; a packed row holds several of them."""
        tokens = self.sample.counts["pieces"] / max(len(self.sample.documents), 1) + 2
        packed = 1.0 if self.rows.classes else max(sum(self.lengths.values()) / tokens, 1.0)
        return self.batch * packed / self.number_of_rows

    @property
    def steps(self) -> int:
        """The steps of about `EPOCHS` epochs, within limits."""
        least, most = STEPS
        return int(min(max(round(EPOCHS / self.epochs_per_step, -2), least), most))

    @property
    def held_out(self) -> dict[str, float]:
        """The share that is held out, larger than the usual one if that would be few rows."""
        usual = self.rows.arguments.get("held_out", {})
        least = max(HELD_OUT, HELD_OUT_PER_CLASS * len(self.rows.classes))
        count = self.number_of_rows
        if not usual or count <= SMALL or count * usual["validation"] >= least:
            return usual
        # Few groups may need more than the usual most, or no row would be held out.
        share = min(round(least / count, 3), MOST_HELD_OUT)
        return {"validation": max(share, usual["validation"])}

    def files(self) -> dict[str, str]:
        """Return the texts of the files to write, by path from the repository's root."""
        kind = "classes" if self.rows.classes else "pairs"
        about = f"{self.name}: {self.start.model.name} fine-tuned on own {kind}"
        return {
            f"tasks/{self.name}.py": self._module(about),
            f"gin/{self.name}.gin": self._recipe(about),
        }

    def _module(self, about: str) -> str:
        arguments = dict(self.rows.arguments)
        if "corpus" in arguments:
            arguments["corpus"] = portable_path(arguments["corpus"])
        if "parallel" in arguments:
            sides = arguments["parallel"]["train"]
            arguments["parallel"] = {"train": tuple(map(portable_path, sides))}
        if self.held_out:
            arguments["held_out"] = self.held_out
        settings = [f"lengths={python(self.lengths)},"]
        if not self.rows.classes:
            settings.append(f"metrics={python(METRICS)},")
        if self.rows.prefix:
            settings.append(f"prefix={quoted(self.rows.prefix)},")
        if self.start.lacks_cedillas:
            settings.append("cedilla=True,")
        return fill(
            "finetune.py",
            docstring=docstring(f"{about}."),
            job="classification" if self.rows.classes else "text_to_text",
            name=self.name,
            rows="\n".join(f"{name}={python(value)}," for name, value in arguments.items()),
            vocabulary=self.start.vocabulary_code,
            settings="\n".join(settings),
        )

    def _recipe(self, about: str) -> str:
        start, classes = self.start, self.rows.classes
        imported = f"include '{start.folder}/config.gin'  # its sizes"
        return fill(
            "finetune.gin",
            about=about,
            name=self.name,
            job_import="import tasks.jobs.classification" if classes else "",
            package=start.model.family.package,
            configuration=start.model.family.configuration,
            include=start.model.family.include,
            network=imported if start.model.model_type else "",
            run="classify" if classes else "finetune",
            greedy="" if classes else "include 'gin/shared/greedy.gin'",
            lengths=self.lengths,
            class_ids=CLASS_IDS if classes else "",
            checkpoint=repr(f"{start.folder}/checkpoint_{start.model.step}"),
            model_step=f"{start.model.step:,}",
            last_step=start.model.step + self.steps,
            batch=self.batch,
            period=self.steps // 5,
            dropout=0.0 if start.is_narrow else 0.1,
            rate=RATES[0] if start.is_narrow else RATES[1],
            bindings="\n".join(start.bindings),
            metric="mean_f1" if classes else "chrf",
        )

    def commands(self) -> list[str]:
        """Return the commands that follow, in their order."""
        model, run = self.start.model, f"runs/{self.name}"
        bring_in, model_type = [], ""
        if model.model_type:
            published = shlex.quote(model.name)
            bring_in = [f"python -m convert from_hf {published} {self.start.folder}"]
        if model.model_type and model.family in (T5, BYT5):
            model_type = f" --model_type {model.model_type}"
        prefix = self.rows.prefix
        flag = "--gin.infer_script.infer.input_prefix="
        prefix_flag = f" {flag}{gin_argument(prefix)}" if prefix else ""
        misclassified = [f"python -m report.misclassified {run}"] if self.rows.classes else []
        return [
            *bring_in,
            f"bash launch/train.sh {self.name} --dry_run",
            f"bash launch/train.sh {self.name}",
            f"python -m report {run}",
            *misclassified,
            f"python -m t5x.infer --gin_file=gin/{self.name}.gin "
            "--gin_file=t5x/configs/runs/infer.gin \\\n"
            f"    --gin.CHECKPOINT_PATH=\"'{run}'\" "
            "--gin.utils.RestoreCheckpointConfig.mode=\"'best'\" \\\n"
            f"    --gin.infer_script.infer.input_file=\"'in.txt'\"{prefix_flag} "
            f"--gin.INFER_OUTPUT_DIR=\"'{run}/out'\"",
            f"bash convert/convert.sh {run}{model_type}",
        ]

    def report(self, written: Sequence[str]) -> str:
        """Return what the rows hold, what was written, and the commands that follow."""
        epochs = counted(self.steps * self.epochs_per_step, "epoch", ".2g")
        bring_in = "bring the model in, " if self.start.model.model_type else ""
        return "\n".join(
            [
                *self._summary(),
                f"{self.steps:,} steps of {self.batch} rows are about {epochs}",
                *(f"wrote {path}" for path in written),
                "",
                f"Now {bring_in}check all, train, look at the run, use its best checkpoint on the "
                "lines of a file, and convert it:",
                *(f"  {command}" for command in self.commands()),
                f"runs/{self.name}/generated_predictions.jsonl then has the best checkpoint's "
                "answers on the validation rows.",
                "",
                f"The workers of a pod have what is pushed: {commit_command(written)}",
                f"and from a bucket what {shlex.quote(self.start.folder)} holds (docs/pods.md).",
            ]
        )

    def _summary(self) -> list[str]:
        """Return what the rows hold, as lines."""
        classes, sample = self.rows.classes, self.sample
        corpus = f"{sample.corpus}: {sample.overview}"
        if self.held_out != self.rows.arguments.get("held_out", {}):
            share = self.held_out["validation"]
            corpus = f"{corpus.partition(';')[0]}; {share:.1%} held out as 'validation'"
        lines = [corpus, *filter(None, [self.rows.repeated])]
        if classes:
            lines.append(f"{len(classes)} classes: {first_names(classes, most=10)}")
        for side, text in sample.documents[0].items():
            lines.append(f"the first {side}: {first_characters(text)}")
        for side, sizes in sample.histograms.items():
            if side == "inputs" or not classes:
                lines.append(
                    f"{side} of at most {self.lengths[side]} tokens are kept whole: half have "
                    f"{sizes.median} or fewer, 95 % {sizes.most_of}, the longest {sizes.longest}"
                )
        return lines


def gin_argument(text: str) -> str:
    """Return a text as a gin string in double quotes of a shell."""
    literal = repr(text).replace("!", r"\x21")  # which an interactive shell replaces
    return '"' + re.sub(r'([\\"$`])', r"\\\1", literal) + '"'


def first_characters(text: str, most: int = 80) -> str:
    """Return the beginning of a text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]} …"
