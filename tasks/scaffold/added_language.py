"""Files and commands that add a language to an existing model.

The command is `python -m tasks.new_language NAME --from MODEL`.

    model = starting_model.open_model("google/umt5-small")
    addition = AddedLanguage(model, "ka_umt5_small", [georgian, romanian, ENGLISH])
    addition.files()                    # {path: text} of tasks/, gin/ and launch/; not written
    print(addition.report(written))     # the paths written, and the commands to run

By default the commands convert the model to a run, remove pieces that only dropped languages use,
add pieces for the new one, train on it and the kept languages, decay the learning rate to zero, and
convert the result back to the Hugging Face class that the model came from.
"""

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from common.new_files import commit_command
from tasks.scaffold.files import docstring, fill, python, quoted
from tasks.scaffold.starting_model import BYT5, T5, Model
from tasks.scaffold.training_text import TrainingText

EPOCHS = 4  # epochs of the new language's text
STEPS = (1_000, 100_000)
BATCH = 128  # rows of a step
NEW_PIECES = ((1e8, 8_000), (1e7, 4_000), (0.0, 1_000))  # (least tokens of text, new pieces)
DOCUMENTS = 100_000  # documents of each language by which pieces are cut and learned
DECAY = 5  # the longer part has so many times the steps of the shorter


class AddedLanguage(NamedTuple):
    """A task, a recipe and a script that add the first of `texts` to a model.

    The other texts are of the languages that stay. `name` calls the files. With `keeps_pieces` no
    piece of the vocabulary is cut, whatever its language. With `decay_only` the new language is
    read while the rate falls, and only the others before.
    """

    model: Model
    name: str
    texts: Sequence[TrainingText]
    keeps_pieces: bool = False
    decay_only: bool = False

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks, the new language's first."""
        return [f"{self.name}_{text.short}" for text in self.texts]

    @property
    def others(self) -> str:
        """The task or mixture of the languages that stay, "" if there are none."""
        return f"{self.name}_others" if len(self.tasks) > 2 else "".join(self.tasks[1:])

    @property
    def mixture(self) -> str:
        """The mixture of the new language and the others in equal shares, or its task alone."""
        return self.name if self.others else self.tasks[0]

    @property
    def steps(self) -> tuple[int, int]:
        """The steps at a constant rate, and the steps of the decay.

        The longer part reads the new language about `EPOCHS` times, as half of the text if others
        are read too. With `decay_only` the decay is the longer part.
        """
        share = 0.5 if self.others else 1.0
        tokens_per_step = share * BATCH * self.model.family.tokens
        steps = round(EPOCHS * self.texts[0].tokens / tokens_per_step, -3)
        steps = int(min(max(steps, STEPS[0]), STEPS[1]))
        return (steps // DECAY, steps) if self.decay_only else (steps, steps // DECAY)

    @property
    def run(self) -> str:
        """The folder of the run."""
        return f"runs/{self.name}"

    @property
    def imported(self) -> str:
        """The run with the model's own vocabulary: the user's, or one made of published weights."""
        return f"{self.run}_published" if self.model.model_type else self.model.name

    @property
    def start(self) -> str:
        """The run that training starts from."""
        return f"{self.run}_start" if self.model.family.vocabulary else self.imported

    def files(self) -> dict[str, str]:
        """Return the texts of the files to write, by path from the repository's root."""
        others = ", ".join(text.short for text in self.texts[1:])
        continued = f", continued with {others}" if others else ""
        about = f"{self.model.name}{continued}, and {self.texts[0].short} added."
        return {
            f"tasks/{self.name}.py": self._module(about),
            f"gin/{self.name}.gin": self._recipe(about),
            f"launch/{self.name}.sh": fill("launch.sh", recipe=self.name),
        }

    def _module(self, about: str) -> str:
        family, tasks = self.model.family, self.tasks
        package = ["corpora"]
        mixtures = []
        if len(tasks) > 2:
            mixtures.append(_mixture(self.others, tasks[1:]))
        if self.others:
            package.append("mixtures")
            mixtures.append(_mixture(self.mixture, [tasks[0], self.others]))
        vocabulary = quoted(f"{self.start}/{family.vocabulary}")
        if family is BYT5:
            package.append("vocabularies")
            vocabulary = "vocabularies.byt5()"
        imports = {text.imports for text in self.texts}
        return fill(
            "add_language.py",
            docstring=docstring(about),
            imports="\n".join(sorted({f"from tasks import {', '.join(package)}", *imports})),
            vocabulary=vocabulary,
            objective=family.objective,
            tasks="".join(map(_task, tasks, self.texts)),
            mixtures="".join(mixtures),
        )

    def _recipe(self, about: str) -> str:
        family, (constant, _) = self.model.family, self.steps
        bindings = {
            "vocabulary.model": [
                f"VOCABULARY_FILE = '{self.start}/vocabulary.model'",
                "seqio.SentencePieceVocabulary.sentencepiece_model_file = %VOCABULARY_FILE",
                "tasks.vocabularies.task_file.path = %VOCABULARY_FILE",
            ],
            "tokenizer": [
                f"network.{family.configuration}.attention_dropout_rate = %DROPOUT_RATE",
                "VOCABULARY = @tasks.vocabularies.tokenizer()",
                f"VOCABULARY_FILE = '{self.start}/tokenizer'",
                "tasks.vocabularies.tokenizer.path = %VOCABULARY_FILE",
                "tasks.vocabularies.task_file.path = %VOCABULARY_FILE",
            ],
            "": ["seqio.ByteVocabulary.extra_ids = 100  # sentinels after the bytes"],
        }
        return fill(
            "add_language.gin",
            about=about,
            recipe=self.name,
            package=family.package,
            include=family.include,
            start=self.start,
            mixture=self.others if self.decay_only else self.mixture,
            lengths={"inputs": family.inputs, "targets": family.targets},
            steps=self.model.step + constant,
            configuration=family.configuration,
            vocabulary_bindings="\n".join(bindings[family.vocabulary]),
            rate=family.rate,
            warmup=min(1_000, constant // 10),
            checkpoint=repr(f"{self.start}/checkpoint_{self.model.step}"),
            period=constant // 4,
        )

    def commands(self) -> list[str]:
        """Return the commands that follow, in their order."""
        constant, decay = self.steps
        last_checkpoint = f"{self.run}/checkpoint_{self.model.step + constant}"
        train = f"bash launch/{self.name}.sh"
        cool_down = (
            f"MODEL_DIR={self.run}_decay {train} \\\n"
            f"    --gin.COOLDOWN_FROM=\"'{last_checkpoint}'\" "
            f"--gin.TRAIN_STEPS_RELATIVE={decay}"
        )
        if self.decay_only:
            cool_down += f" \\\n    --gin.MIXTURE_OR_TASK_NAME=\"'{self.name}'\""
        publish = f"bash convert/convert.sh {self.run}_decay"
        if self.model.model_type and self.model.family in (T5, BYT5):
            publish += f" --model_type {self.model.model_type}"
        return [
            *self._imports(),
            *self._vocabulary_changes(),
            f"cp {shlex.quote(self.start)}/config.gin gin/{self.name}_network.gin",
            f"{train} --dry_run",
            train,
            cool_down,
            publish,
        ]

    def _imports(self) -> list[str]:
        if not self.model.model_type:
            return []
        return [f"python -m convert from_hf {shlex.quote(self.model.name)} {self.imported}"]

    def _vocabulary_changes(self) -> list[str]:
        """Return the commands that cut the vocabulary and then extend it."""
        if not self.model.family.vocabulary:
            return []
        texts = f"--task {' '.join(self.tasks)} --module tasks.{self.name}"
        texts += f" --max_documents {DOCUMENTS}"
        command = lambda change, run, options, out: (
            f"python -m vocabulary.{change} {run} {options} \\\n    --checkpoint {run} --out {out}"
        )
        original, cut = shlex.quote(self.imported), f"{self.run}_cut"
        trim = [] if self.keeps_pieces else [command("trim", original, texts, cut)]
        size = next(size for least, size in NEW_PIECES if self.texts[0].tokens >= least)
        extended = original if self.keeps_pieces else cut
        return [*trim, command("extend", extended, f"{texts} --size {size}", self.start)]

    def report(self, written: Sequence[str]) -> str:
        """Return what was written, what the model loses or keeps, and the commands that follow."""
        constant, decay = self.steps
        consequence = "no other language is read, so the model loses in them: name those to keep"
        if others := ", ".join(text.short for text in self.texts[1:]):
            consequence = f"{others} are read too, so that the model keeps them"
        lines = [
            f"{constant:,} steps, then {decay:,} while the rate falls: {consequence}",
            *(f"wrote {path}" for path in written),
            "",
            "Now run these, one after the other; each vocabulary command takes --dry_run:",
            *(f"  {command}" for command in self.commands()),
            "",
            "The workers of a pod have what is pushed: "
            + commit_command([*written, f"gin/{self.name}_network.gin"]),
            f"and from a bucket what {shlex.quote(self.start)} holds (docs/pods.md).",
        ]
        if not self.model.family.vocabulary:
            bytes_stay = "its pieces are bytes, which every language has: no vocabulary is changed"
            lines.insert(1, bytes_stay)
        return "\n".join(lines)


def _task(name: str, text: TrainingText) -> str:
    cedilla = "    cedilla=True,\n" if text.cedilla else ""
    return f"add(\n    {quoted(name)},\n    {text.source},\n{cedilla})\n"


def _mixture(name: str, parts: Sequence[str]) -> str:
    rates = python(dict.fromkeys(parts, 1), " " * 4)
    return f"mixtures.add(\n    {quoted(name)},\n    {rates},\n)\n"
