"""A T5 pretrained from scratch: `python -m tasks.new_language NAME --size SIZE`.

    recipe = PretrainingRecipe(text, "base")
    recipe.files()                        # tasks/, gin/ and launch/, by path
    print(recipe.report(written))         # the commands that follow

The size of the vocabulary and the number of steps follow from the amount of text.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from common.tables import amount, counted, data_size
from tasks.scaffold.files import fill
from tasks.scaffold.training_text import TrainingText

# More repetitions of a corpus teach clearly less than new text (Muennighoff et al. 2023,
# arXiv:2305.16264).
EPOCHS = 4
MOST_EPOCHS = 40  # beyond them, as good as nothing
PIECES = ((1e9, 64_000), (1e8, 32_000), (5e6, 8_192), (0.0, 2_048))  # (least bytes of text, pieces)


class Size(NamedTuple):
    """How a T5 of one size is trained.

    It suits texts of `tokens` or more. A step reads `batch` rows of `inputs` tokens, each of them
    filled by `row_tokens` of text. `steps` are the fewest and the most, in multiples of `unit`. The
    model is cut into `partitions`, which fit the memory of chips.
    """

    tokens: float = math.inf  # such a size is only trained if the user asks for it
    template: str = "pretrain.gin"
    batch: int = 128
    inputs: int = 512
    row_tokens: int = 568
    steps: tuple[int, int] = (10_000, 2_000_000)
    unit: int = 1_000
    most_pieces: int = 64_000
    partitions: int = 1


SIZES = {
    "tiny": Size(
        tokens=0.0,
        template="pretrain_tiny.gin",
        batch=16,
        inputs=128,
        row_tokens=142,
        steps=(300, 2_000),
        unit=100,
        most_pieces=8_192,
    ),
    "small": Size(tokens=5e7),
    "base": Size(tokens=5e8),
    "large": Size(),
    "xl": Size(partitions=8),
    "xxl": Size(partitions=16),
}
SMALLEST = "tiny"


def suitable_size(text: TrainingText) -> str:
    """Return the size of a model that suits so much text, at most base."""
    tokens = text.tokens_of(suitable_pieces(text))
    return next(name for name in reversed(SIZES) if tokens >= SIZES[name].tokens)


def suitable_pieces(text: TrainingText) -> int:
    """Return the size of a vocabulary that suits so much text."""
    return next(pieces for least, pieces in PIECES if text.text_bytes >= least)


class PretrainingRecipe(NamedTuple):
    """A task, a recipe and a script that train a T5 of a size on a text."""

    text: TrainingText
    size_name: str

    @property
    def size(self) -> Size:
        """How models of this size are trained."""
        return SIZES[self.size_name]

    @property
    def task(self) -> str:
        """The name of the task."""
        return f"{self.text.short}_span_corruption"

    @property
    def name(self) -> str:
        """The name of the recipe, its script and its run."""
        return f"{self.text.short}_t5x_{self.size_name}"

    @property
    def vocabulary(self) -> str:
        """The path of the vocabulary, which is trained before the model."""
        return f"vocabularies/{self.text.short}_{self.pieces}.model"

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
        text = self.text
        task = fill(
            "pretrain.py",
            about=text.about,
            imports=text.imports,
            task=self.task,
            source=text.source,
            vocabulary=self.vocabulary,
            cedilla="cedilla=True," if text.cedilla else "",
        )
        recipe = fill(
            self.size.template,
            size=self.size_name,
            language=text.about.partition(":")[0],
            module=text.module,
            recipe=self.name,
            task=self.task,
            vocabulary=self.vocabulary,
            pieces=self.pieces,
            counted_pieces=f"{self.pieces:,}",
            steps=self.steps,
            period=self.steps // 4,
            infill=f"INFILL_SENTENCES = ({text.sentence!r},)" if text.sentence else "",
            partitions=self.size.partitions,
        )
        return {
            f"tasks/{text.module}.py": task,
            f"gin/{self.name}.gin": recipe,
            f"launch/{self.name}.sh": fill("launch.sh", recipe=self.name),
        }

    def report(self, written: Sequence[str]) -> str:
        """Return what the corpus holds, what was written, and the three commands that follow."""
        return "\n".join(
            [
                self.text.summary,
                *self._assessment(),
                *(f"wrote {path}" for path in written),
                "",
                "Now train the vocabulary, then the model (first with --dry_run, which checks "
                "all), and convert it:",
                f"  python -m vocabulary.train {self.text.flags} \\",
                f"    --size {self.pieces} --out {self.vocabulary}",
                f"  bash launch/{self.name}.sh",
                f"  bash convert/convert.sh runs/{self.name}",
            ]
        )

    def _assessment(self) -> list[str]:
        """Return whether the text suits the size, as lines."""
        text, size, steps = self.text, self.size, self.steps
        epochs = float(f"{steps * self.epochs_per_step:.2g}")
        if self.lacks_text:
            enough = text.text_bytes * size.steps[0] * self.epochs_per_step / EPOCHS
            return [
                f"{data_size(text.text_bytes)} are too little text to learn a language from: the "
                f"smallest recipe suits {data_size(enough)} or more. Its {steps:,} steps read all "
                f"of this text {epochs:,.15g} times, so that the model learns it by heart. Add "
                "text, or add the language to a model that knows others (--from google/umt5-small "
                "--keep eng)."
            ]
        suitable = suitable_size(text)
        lines = [
            f"about {amount(self.tokens)} tokens, which suit a model of --size {suitable}",
            f"{steps:,} steps of {size.batch} rows of {size.inputs} tokens are about "
            f"{counted(epochs, 'epoch', ',.15g')}",
        ]
        if self.tokens < min(size.tokens, SIZES["base"].tokens):
            lines.append(
                f"That is little text for {self.size_name}: take --size {suitable}, continue from "
                "mT5 (gin/ro_mt5x_base.gin shows how), or add other corpora "
                "(tasks/languages/public.py)"
            )
        return lines
