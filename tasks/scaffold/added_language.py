"""A language added to a model that exists: `python -m tasks.new_language NAME --from MODEL`.

    model = starting_model.open_model("google/umt5-small")
    road = Road(model, "google/umt5-small", [ka, ron, eng], tokens=2e7)
    road.files()                                           # tasks/, gin/ and launch/, by path
    print(road.report(written))                            # the commands that follow

The commands bring the model in, cut its vocabulary to the languages that stay, add pieces for the
new one, train on all of them, let the rate fall to zero, and publish the model in its own class.
"""

import itertools
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from tasks.scaffold.files import SCRIPT
from tasks.scaffold.starting_model import BYT5, T5, Model

EPOCHS = 4  # of the new language's text
STEPS = (1_000, 100_000)
NEW_PIECES = ((1e8, 8_000), (1e7, 4_000), (0.0, 1_000))  # by tokens of text
DOCUMENTS = 100_000  # of each language, by which pieces are cut and learned
DECAY = 5  # one more step for so many of the run
ENGLISH = 'CorpusSource("HuggingFaceFW/fineweb", "sample-10BT", held_out={"validation": 0.001})'


class Corpus(NamedTuple):
    """The text of a language: the name of its task, and Python that makes its source."""

    short: str
    source: str
    imports: str
    cedilla: bool = False


TASK = '''"""{about}"""

import functools

{imports}

VOCABULARY = {vocabulary}
add = functools.partial(corpora.add, vocabulary=VOCABULARY, objective="{objective}")

{tasks}{mixture}'''
RECIPE = """\
# {about}
# Command: bash launch/{recipe}.sh     Cost and loss to expect: not yet measured.
from __gin__ import dynamic_registration
import seqio
import tasks.{recipe}
import tasks.vocabularies
from t5x import partitioning
from t5x import utils
from {package} import network
include '{include}'
include 'gin/{recipe}_network.gin'  # the sizes of the model, copied from {start}
include 't5x/configs/runs/pretrain.gin'
include 'gin/shared/run.gin'

MIXTURE_OR_TASK_NAME = '{mixture_name}'
TASK_FEATURE_LENGTHS = {lengths}
TRAIN_STEPS = {last}
DROPOUT_RATE = 0.0
network.{configuration}.dropout_rate = %DROPOUT_RATE
{vocabulary_bindings}
partitioning.PjitPartitioner.num_partitions = 1
utils.create_learning_rate_scheduler:
  factors = 'constant * linear_warmup'  # the decay branch lets it fall
  base_learning_rate = {rate}
  warmup_steps = {warmup}
utils.RestoreCheckpointConfig:
  path = {checkpoint!r}
  mode = 'specific'
  dtype = 'float32'
utils.SaveCheckpointConfig:
  period = {period}
  save_dataset = True
"""
BINDINGS = {
    "vocabulary.model": """\
seqio.SentencePieceVocabulary.sentencepiece_model_file = '{start}/vocabulary.model'""",
    "tokenizer": """\
network.{configuration}.attention_dropout_rate = %DROPOUT_RATE
VOCABULARY = @tasks.vocabularies.tokenizer()
tasks.vocabularies.tokenizer.path = '{start}/tokenizer'""",
    "": "seqio.ByteVocabulary.extra_ids = 100  # sentinels behind the bytes",
}


class Road(NamedTuple):
    """A language, the first of `corpora`, for a model that keeps the others.

    `name` calls the files. `tokens` are about those of the language's text. `keeps_all` says that
    no piece is cut, whichever languages they are of; `decay_only`, that the new language is read
    while the rate falls, and only the others before.
    """

    model: Model
    name: str
    corpora: Sequence[Corpus]
    tokens: float
    keeps_all: bool
    decay_only: bool

    @property
    def others(self) -> str:
        """The task or mixture of the languages that stay, "" without any."""
        return f"{self.name}_others" if self.tasks[2:] else "".join(self.tasks[1:])

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks, the new language's first."""
        return [f"{self.name}_{corpus.short}" for corpus in self.corpora]

    @property
    def mixture(self) -> str:
        """What is read of the new language and others, in equal shares; its task without others."""
        return self.name if self.others else self.tasks[0]

    @property
    def steps(self) -> tuple[int, int]:
        """The steps at a constant rate, and those of the decay.

        The longer part has about `EPOCHS` epochs of the language, half of what is read with others.
        """
        share = 0.5 if len(self.corpora) > 1 else 1.0
        wanted = EPOCHS * self.tokens / (share * 128 * self.model.family.tokens)
        long = int(min(max(round(wanted, -3), STEPS[0]), STEPS[1]))
        return (long // DECAY, long) if self.decay_only else (long, long // DECAY)

    def folder(self, part: str) -> str:
        """Return the folder of a run on the road."""
        return f"runs/{self.name}{part}"

    @property
    def brought_in(self) -> str:
        """The run that the model is before its vocabulary changes."""
        return self.folder("_published") if self.model.model_type else self.model.name

    @property
    def start(self) -> str:
        """The run that training starts from."""
        return self.folder("_start") if self.model.family.vocabulary else self.brought_in

    def files(self) -> dict[str, str]:
        """Return the texts of the files to write, by path from the repository's root."""
        family = self.model.family
        others = [corpus.short for corpus in self.corpora[1:]]
        also = f", continued with {', '.join(others)}" if others else ""
        mixtures = {self.others: self.tasks[1:]} if len(others) > 1 else {}
        mixtures |= {self.name: [self.tasks[0], self.others]} if others else {}
        constant = self.steps[0]
        used = {corpus.imports for corpus in self.corpora}
        package = ["corpora", *["mixtures"] * bool(others), *["vocabularies"] * (family is BYT5)]
        imports = sorted({f"from tasks import {', '.join(package)}", *used})
        vocabulary = _quoted(f"{self.start}/{family.vocabulary}")
        if family is BYT5:
            vocabulary = "vocabularies.byt5()"
        filled: dict[str, Any] = {
            "about": f"{self.model.name}{also}, and {self.corpora[0].short} added.",
            "imports": "\n".join(imports),
            "start": self.start,
            "checkpoint": f"{self.start}/checkpoint_{self.model.step}",
            "vocabulary": vocabulary,
            "objective": family.objective,
            "tasks": "".join(map(_task, self.tasks, self.corpora)),
            "mixture": "".join(itertools.starmap(_mixture, mixtures.items())),
            "mixture_name": self.others if self.decay_only else self.mixture,
            "recipe": self.name,
            "package": family.package,
            "include": family.include,
            "configuration": family.configuration,
            "lengths": {"inputs": family.inputs, "targets": family.targets},
            "last": self.model.step + constant,
            "rate": family.rate,
            "warmup": min(1_000, constant // 10),
            "period": constant // 4,
        }
        filled["vocabulary_bindings"] = BINDINGS[family.vocabulary].format(**filled)
        return {
            f"tasks/{self.name}.py": TASK.format(**filled),
            f"gin/{self.name}.gin": RECIPE.format(**filled),
            f"launch/{self.name}.sh": SCRIPT.format(**filled),
        }

    def commands(self) -> list[str]:
        """Return the commands that follow, in their order."""
        found = []
        if self.model.model_type:
            name = shlex.quote(self.model.name)
            found.append(f"python -m convert from_hf {name} {self.brought_in}")
        run = shlex.quote(self.brought_in)
        texts = f"--task {' '.join(self.tasks)} --module tasks.{self.name}"
        texts += f" --max_documents {DOCUMENTS}"
        changes = [] if self.keeps_all else [("trim", self.folder("_cut"), "")]
        size = next(size for least, size in NEW_PIECES if self.tokens >= least)
        changes.append(("extend", self.start, f" --size {size}"))
        for command, out, more in changes if self.model.family.vocabulary else []:
            found.append(
                f"python -m vocabulary.{command} {run} {texts}{more} \\\n"
                f"    --checkpoint {run} --out {out}"
            )
            run = out
        constant, decay = self.steps
        last = f"{self.folder('')}/checkpoint_{self.model.step + constant}"
        now = f" \\\n    --gin.MIXTURE_OR_TASK_NAME=\"'{self.name}'\"" * self.decay_only
        kind = self.model.model_type if self.model.family in (T5, BYT5) else None
        return [
            *found,
            f"cp {shlex.quote(self.start)}/config.gin gin/{self.name}_network.gin",
            f"bash launch/{self.name}.sh --dry_run",
            f"bash launch/{self.name}.sh",
            f"MODEL_DIR={self.folder('_decay')} bash launch/{self.name}.sh \\\n"
            f"    --gin.COOLDOWN_FROM=\"'{last}'\" "
            f"--gin.TRAIN_STEPS_RELATIVE={decay}{now}",
            f"bash convert/convert.sh {self.folder('_decay')}"
            + (f" --model_type {kind}" if kind else ""),
        ]

    def report(self, written: Sequence[str]) -> str:
        """Return what was written, what the model loses or keeps, and the commands that follow."""
        kept = [corpus.short for corpus in self.corpora[1:]]
        if kept:
            keeps = f"{', '.join(kept)} are read too, so that the model keeps them"
        else:
            keeps = "no other language is read, so the model loses in them: name those to keep"
        constant, decay = self.steps
        lines = [f"{constant:,} steps, then {decay:,} while the rate falls: {keeps}"]
        if not self.model.family.vocabulary:
            lines.append("its pieces are bytes, which every language has: no vocabulary is changed")
        lines += [f"wrote {path}" for path in written]
        lines += [
            "",
            "Now run these, one after the other; each vocabulary command takes --dry_run:",
        ]
        return "\n".join([*lines, *(f"  {command}" for command in self.commands())])


def _task(task: str, corpus: Corpus) -> str:
    more = "    cedilla=True,\n" * corpus.cedilla
    return f'add(\n    "{task}",\n    {corpus.source},\n{more})\n'


def _quoted(text: str) -> str:
    return f'"{text}"'


def _mixture(name: str, parts: Sequence[str]) -> str:
    rates = ", ".join(f"{_quoted(part)}: 1" for part in parts)
    return f"mixtures.add(\n    {_quoted(name)},\n    {{{rates}}},\n)\n"
