"""A model pretrained from scratch: `python -m tasks.new_language NAME --kind KIND --size SIZE`.

    recipe = PretrainingRecipe(text, "base", "bert")
    recipe.files()                        # tasks/, gin/ and launch/, by path
    PretrainingRecipe(text, "base", "modernbert", phases=True)     # three recipes and scripts
    print(recipe.report(written))         # the commands that follow

The size of the vocabulary and the number of steps follow from the amount of text.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from common.new_files import commit_command
from common.tables import amount, counted, data_size
from tasks.scaffold.files import docstring, fill, python, quoted
from tasks.scaffold.kinds import KINDS, Kind, Size
from tasks.scaffold.training_text import GAP, TrainingText

# More repetitions of a corpus teach clearly less than new text (Muennighoff et al. 2023,
# arXiv:2305.16264).
EPOCHS = 4
MOST_EPOCHS = 40  # beyond them, as good as nothing
PIECES = ((1e9, 64_000), (1e8, 32_000), (5e6, 8_192), (0.0, 2_048))  # (least bytes of text, pieces)
# Shares of the first phase's steps, and of its rate, as Warner et al. 2024 (arXiv:2412.13663) have
# for ModernBERT base.
LONG_STEPS, DECAY_STEPS, LONG_RATE = 0.15, 0.03, 0.375
# Each phase hides less, as mmBERT's (Marone et al. 2025, arXiv:2509.06888).
LONG_MASKING, DECAY_MASKING = "MaskedLM(Masking(0.15))", "MaskedLM(Masking(0.05))"
SMALLEST = "tiny"


def suitable_size(text: TrainingText, kind: str = "t5") -> str:
    """Return the size of a model that suits so much text, at most base."""
    tokens, sizes = text.tokens_of(suitable_pieces(text)), KINDS[kind].sizes
    return next(name for name in reversed(sizes) if tokens >= sizes[name].tokens)


def suitable_pieces(text: TrainingText) -> int:
    """Return the size of a vocabulary that suits so much text."""
    return next(pieces for least, pieces in PIECES if text.text_bytes >= least)


class PretrainingRecipe(NamedTuple):
    """A task, a recipe and a script that train a model of a kind and a size on a text.

    With `phases` there are three recipes and scripts: for short rows, for long rows, and for the
    best text while the rate falls.
    """

    text: TrainingText
    size_name: str
    kind_name: str = "t5"
    phases: bool = False

    @property
    def kind(self) -> Kind:
        """What all models of this kind have."""
        return KINDS[self.kind_name]

    @property
    def size(self) -> Size:
        """How models of this size are trained."""
        return self.kind.sizes[self.size_name]

    @property
    def task(self) -> str:
        """The name of the task."""
        return f"{self.text.short}_{self.kind.task}"

    @property
    def module(self) -> str:
        """The module of `tasks` that registers it; a language may have one of each kind."""
        return self.text.module + ("" if self.kind_name == "t5" else f"_{self.kind_name}")

    @property
    def name(self) -> str:
        """The name of the recipe, its script and its run."""
        return f"{self.text.short}_{self.kind.recipe}_{self.size_name}"

    @property
    def vocabulary(self) -> str:
        """The path of the vocabulary, which is trained before the model."""
        kind = "" if self.kind_name == "t5" else f"_{self.kind_name}"
        suffix = ".model" if self.kind.generates else ""
        return f"vocabularies/{self.text.short}{kind}_{self.pieces}{suffix}"

    @property
    def pieces(self) -> int:
        """The size of the vocabulary."""
        return min(suitable_pieces(self.text), self.size.most_pieces)

    @property
    def tokens(self) -> float:
        """About how many tokens the text has."""
        return self.text.tokens_of(self.pieces)

    @property
    def epochs_per_step(self) -> float:
        """The share of the text that a step reads, roughly."""
        return self.size.batch * self.size.row_tokens / max(self.tokens, 1)

    @property
    def lacks_text(self) -> bool:
        """Whether even the fewest steps of the smallest model would read the text too often."""
        epochs = self.size.steps[0] * self.epochs_per_step
        return self.size_name == SMALLEST and epochs > MOST_EPOCHS

    @property
    def steps(self) -> int:
        """The steps of about `EPOCHS` epochs within limits, `MOST_EPOCHS` of too little text."""
        (least, most), unit = self.size.steps, self.size.unit
        rounded = lambda epochs: unit * math.floor(epochs / self.epochs_per_step / unit)
        if self.lacks_text:
            least = max(rounded(MOST_EPOCHS), unit)
        return min(max(rounded(EPOCHS), least), most)

    def files(self) -> dict[str, str]:
        """Return the texts of the files to write, by path from the repository's root."""
        text, size = self.text, self.size
        is_tiny = self.size_name == SMALLEST
        period = self.steps // 4 if is_tiny else 10_000
        sentence = text.sentence.replace(GAP, self.kind.gap)
        recipe = fill(
            size.template,
            **self._names,
            kind=self.kind_name,
            package=self.kind.package,
            includes="\n".join(f"include '{file}'" for file in self._includes),
            configuration=self.kind.configuration,
            module=self.module,
            vocabulary=self.vocabulary,
            pieces=self.pieces,
            counted_pieces=f"{self.pieces:,}",
            steps=self.steps,
            batch=size.batch,
            inputs=size.inputs,
            period=period,
            evaluation=f"EVAL_PERIOD = {period}\nEVAL_STEPS = 3" if is_tiny else "",
            infill=f"INFILL_SENTENCES = ({sentence!r},)" if sentence else "",
            dropout=0.0 if is_tiny else self.kind.dropout,
            network="\n".join(self._network),
            partitions=size.partitions,
            rate=size.rate,
            warmup=int(self.steps * size.warmup),
            factors="constant * linear_warmup" + " * linear_decay_to_zero" * (not self.phases),
            end="" if self.phases else "total_steps = %TRAIN_STEPS",
        )
        recipes = {self.name: recipe, **(self._later_phases() if self.phases else {})}
        return {
            f"tasks/{self.module}.py": self._module(),
            **{f"gin/{name}.gin": text for name, text in recipes.items()},
            **{f"launch/{name}.sh": fill("launch.sh", recipe=name) for name in recipes},
        }

    @property
    def _names(self) -> dict[str, str]:
        """What the recipes of all phases are told of themselves."""
        names = {"title": self.kind.title, "size": self.size_name, "recipe": self.name}
        return {**names, "language": self.text.about.partition(":")[0], "task": self.task}

    def _module(self) -> str:
        """Return the module of the tasks and mixtures of all corpora and phases."""
        text, kind, imports = self.text, self.kind, [self.text.imports]
        statements = self._registration(self.task, "" if kind.generates else quoted(kind.objective))
        if self.phases:
            best = f"{self.task}_best"
            statements += self._registration(f"{self.task}_long", LONG_MASKING)
            statements += self._task(best, text.best or text.source, DECAY_MASKING)
            statements += (
                "# Add your best corpora here: the rate falls while they are read.\n"
                f"mixtures.add({quoted(f'{self.task}_decay')}, {{{quoted(best)}: 1.0}})\n"
            )
            imports.append("from tasks.objectives.masked_lm import MaskedLM")
            imports.append("from tasks.objectives.masking import Masking")
        return fill(
            "pretrain.py",
            docstring=docstring(f"{text.about}."),
            packages="corpora, mixtures" if self.phases or text.parts else "corpora",
            imports="\n".join(imports),
            statements=statements,
        )

    def _registration(self, name: str, objective: str) -> str:
        """Return Python that registers a task, or the tasks of several corpora and their mixture.

        Of a mixture, the first corpus is read throughout, and the others at most EPOCHS times.
        """
        parts = {f"{name}_{corpus}": source for corpus, source in self.text.parts.items()}
        if not parts:
            return self._task(name, self.text.source, objective)
        tasks = "".join(self._task(task, source, objective) for task, source in parts.items())
        rates, epochs = dict.fromkeys(parts, 1), dict.fromkeys([*parts][1:], EPOCHS)
        dicts = (python(rates, " " * 4), f"epochs={python(epochs, ' ' * 4)}")
        return tasks + _call("mixtures.add", quoted(name), *dicts)

    def _task(self, name: str, source: str, objective: str) -> str:
        """Return Python that registers a task of one corpus."""
        options = [f"objective={objective}"] * bool(objective)
        options += ["cedilla=True"] * self.text.cedilla
        return _call("corpora.add", quoted(name), source, quoted(self.vocabulary), *options)

    def _later_phases(self) -> dict[str, str]:
        """Return the recipes of the second and the third phase, by name."""
        size = self.size
        steps_of = lambda share: size.unit * max(1, round(share * self.steps / size.unit))
        long_steps = steps_of(LONG_STEPS)
        long = fill(
            "phase_long.gin",
            **self._names,
            inputs=size.long_inputs,
            counted_inputs=f"{size.long_inputs:,}",
            steps=self.steps,
            long_steps=long_steps,
            batch=size.batch * size.inputs // size.long_inputs,
            rate=float(f"{LONG_RATE * size.rate:.3g}"),
        )
        decay = fill(
            "phase_decay.gin",
            **self._names,
            steps=self.steps + long_steps,
            decay_steps=steps_of(DECAY_STEPS),
        )
        return {f"{self.name}_long": long, f"{self.name}_decay": decay}

    @property
    def _includes(self) -> list[str]:
        """The gin files of the network."""
        names = {"folder": self.kind.folder, "size": self.size_name}
        return [file.format(**names) for file in self.size.includes]

    @property
    def _network(self) -> list[str]:
        """The lines of an encoder's recipe that set its network."""
        fields = [f"vocab_size = {self.pieces}", *self.kind.network]
        fields.append(f"max_length = {self.size.inputs}")
        if self.phases:
            fields.append("global_theta = 10000.0  # the next phase raises it with max_length")
        if self.size_name == SMALLEST:
            fields.append("dtype = 'float32'  # a CPU is not faster with bfloat16")
        return [f"network.{self.kind.configuration}.{field}" for field in fields]

    def report(self, written: Sequence[str]) -> str:
        """Return what the corpus holds, what was written, and the commands that follow."""
        names = [f"{self.name}{phase}" for phase in ("", *["_long", "_decay"] * self.phases)]
        return "\n".join(
            [
                self.text.summary,
                *self._assessment(),
                *(f"wrote {path}" for path in written),
                "",
                "Now train the vocabulary, then the model (first with --dry_run, which checks "
                "all), and convert it:",
                f"  python -m vocabulary.train {self._vocabulary_flags} \\",
                f"    --size {self.pieces} --out {self.vocabulary}",
                *(f"  bash launch/{name}.sh" for name in names),
                f"  bash convert/convert.sh runs/{names[-1]}",
                "",
                "The workers of a pod have what is pushed: "
                + commit_command([*written, self.vocabulary]),
            ]
        )

    @property
    def _vocabulary_flags(self) -> str:
        """The flags of `vocabulary.train` but the size and the path."""
        kind, rare = self.kind, self.kind.rare_flags if self.text.has_large_script else ""
        return " ".join(filter(None, [kind.vocabulary_flags, self.text.flags, rare]))

    def _assessment(self) -> list[str]:
        """Return whether the text suits the size, as lines."""
        text, size, steps = self.text, self.size, self.steps
        others = f"add it to a model that knows others (--from {self.kind.multilingual} --keep eng)"
        epochs = float(f"{steps * self.epochs_per_step:.2g}")
        if self.lacks_text:
            enough = text.text_bytes * size.steps[0] * self.epochs_per_step / EPOCHS
            return [
                f"{data_size(text.text_bytes)} are too little text to learn a language from: the "
                f"smallest recipe suits {data_size(enough)} or more. Its {steps:,} steps read all "
                f"of this text {epochs:,.15g} times, so that the model learns it by heart. Add "
                f"text, or {others}."
            ]
        suitable = suitable_size(text, self.kind_name)
        lines = [
            f"about {amount(self.tokens)} tokens, which suit a model of --size {suitable}",
            f"{steps:,} steps of {size.batch} rows of {size.inputs} tokens are about "
            f"{counted(epochs, 'epoch', ',.15g')}",
        ]
        if self.tokens < min(size.tokens, self.kind.sizes["base"].tokens):
            lines.append(
                f"That is little text for {self.size_name}: take --size {suitable}, {others}, or "
                "add other corpora (tasks/languages/public.py)"
            )
        return lines


def _call(function: str, *settings: str) -> str:
    """Return Python that calls a function, a line for each setting."""
    return "".join([f"{function}(\n", *(f"    {setting},\n" for setting in settings), ")\n"])
