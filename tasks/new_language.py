"""Write the task, the recipe and the launch script of a language, from FineWeb-2.

    python -m tasks.new_language czech --size base

writes tasks/czech.py, gin/cs_t5x_base.gin and launch/cs_t5x_base.sh, and prints the two commands
that follow: one trains the vocabulary, the other the model. A language is a code such as ces_Latn
or cs, or its English name. The files are yours to change; existing ones are kept unless --overwrite
is given.
"""

import argparse
import pathlib
import re
import unicodedata

from common import arguments
from common.errors import UserError, guarded
from common.tables import counted
from tasks.languages import table
from tasks.languages.table import FINEWEB2, TOKENS_PER_WORD, Language

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTITIONS = {"small": 1, "base": 2, "large": 4, "xl": 8, "xxl": 16}  # of a model, by its size
TOKENS_PER_STEP = 128 * 568  # 128 rows of 512 inputs, which 568 tokens of text fill
# More repetitions of a corpus teach clearly less than new text (Muennighoff et al. 2023,
# arXiv:2305.16264).
EPOCHS, MOST_STEPS, LEAST_STEPS = 4, 2_000_000, 10_000
LARGE_BYTES = 1e9  # of text, from which the larger vocabulary is worth its rows
SAMPLE = 2_000_000  # documents that the vocabulary is trained on

TASK = '''"""{name}: pretraining on FineWeb-2."""

from tasks import corpora
from tasks.languages import public

corpora.add(
    "{task}", public.fineweb2("{code}"), "{vocabulary}"{cedilla}
)
'''
RECIPE = """\
# T5 1.1 {size} from scratch on {name} text, own vocabulary of {pieces:,} pieces.
# Command: bash launch/{recipe}.sh     Cost and loss to expect: not yet measured.
from __gin__ import dynamic_registration
import seqio
import tasks.{module}
from t5x import partitioning
from t5x import utils
from t5x.examples.t5 import network
include 't5x/examples/t5/t5_1_1/{size}.gin'
include 't5x/configs/runs/pretrain.gin'
include 'gin/shared/run.gin'

MIXTURE_OR_TASK_NAME = '{task}'
TASK_FEATURE_LENGTHS = {{'inputs': 512, 'targets': 114}}  # 114: density 0.15, spans of 3
TRAIN_STEPS = {steps}
DROPOUT_RATE = 0.0
seqio.SentencePieceVocabulary.sentencepiece_model_file = '{vocabulary}'
network.T5Config.vocab_size = {pieces}
partitioning.PjitPartitioner.num_partitions = {partitions}
utils.SaveCheckpointConfig:
  period = 10000
  keep = 5
  save_dataset = True
"""
SCRIPT = """\
#!/usr/bin/env bash
set -euo pipefail
exec bash "$(dirname "${{BASH_SOURCE[0]}}")/train.sh" {recipe} "$@"
"""


def names(language: Language, size: str) -> dict[str, str]:
    """Return the names of a language's `module`, `task`, `recipe` and `vocabulary` file."""
    plain = unicodedata.normalize("NFKD", language.name).encode("ascii", "ignore").decode()
    module = re.sub(r"\W+", "_", plain.lower()).strip("_")
    short = language.tag or language.code.partition("_")[0]
    if table.find(short) != language:  # a code means its largest language and script
        short = language.code.lower()
        module = f"{module}_{language.code.partition('_')[2].lower()}"
    elif table.find(language.name) != language:  # such as Dan, where dan is Danish
        module = f"{module}_{short}"
    return {
        "module": module,
        "task": f"{short}_span_corruption",
        "recipe": f"{short}_t5x_{size}",
        "vocabulary": f"vocabularies/{short}_{pieces(language)}.model",
    }


def pieces(language: Language) -> int:
    """Return the size of the vocabulary, by how much text there is."""
    return 64_000 if language.text_bytes >= LARGE_BYTES else 32_000


def epochs(language: Language, steps: int) -> float:
    """Return about how many epochs so many steps are."""
    return steps * TOKENS_PER_STEP / (max(language.words, 1) * TOKENS_PER_WORD)


def train_steps(language: Language) -> int:
    """Return the steps of about `EPOCHS` epochs, in thousands, within limits."""
    wanted = EPOCHS / epochs(language, 1)
    return int(min(max(round(wanted, -3), LEAST_STEPS), MOST_STEPS))


def files(language: Language, size: str) -> dict[str, str]:
    """Return the texts of the files to write, by path from the repository's root."""
    called = names(language, size)
    filled = called | {
        "name": language.name,
        "code": language.code,
        "size": size,
        "pieces": pieces(language),
        "steps": train_steps(language),
        "partitions": PARTITIONS[size],
        # Only Romanian has ș and ț where its texts often have ş and ţ.
        "cedilla": ", cedilla=True" if language.code == "ron_Latn" else "",
    }
    task = TASK.format(**filled)
    one_line = task.replace("(\n    ", "(").replace("\n)\n", ")\n")
    if max(map(len, one_line.splitlines())) <= 100:
        task = one_line
    return {
        f"tasks/{called['module']}.py": task,
        f"gin/{called['recipe']}.gin": RECIPE.format(**filled),
        f"launch/{called['recipe']}.sh": SCRIPT.format(**filled),
    }


def write(language: Language, size: str, root: pathlib.Path, overwrite: bool = False) -> list[str]:
    """Write the files, all or none, and return their paths from `root`.

    Raises:
      UserError: one exists, and `overwrite` is not set.
    """
    made = files(language, size)
    kept = [path for path in made if (root / path).exists()]
    if kept and not overwrite:
        raise UserError(
            f"{' and '.join(kept)} exist: train with them, remove them, or give --overwrite"
        )
    for path, text in made.items():
        (root / path).write_text(text)
    return list(made)


def report(language: Language, size: str, written: list[str]) -> str:
    """Return what was written, what the corpus holds, and the two commands that follow."""
    called, steps = names(language, size), train_steps(language)
    corpus = f"--corpus {FINEWEB2} --config {language.code}"
    corpus += " --cedilla" if language.code == "ron_Latn" else ""
    lines = [
        f"{language.name}, {language.code}: {language.documents:,} documents and "
        f"{language.words:,} words in {language.parquet_bytes / 1e9:,.1f} GB of parquet "
        f"({FINEWEB2}, ODC-By)",
        f"{steps:,} steps of 128 rows are about {counted(epochs(language, steps), 'epoch', '.2g')}",
        *(f"wrote {path}" for path in written),
        "",
        "Now train the vocabulary, and then the model:",
        f"  python -m vocabulary.train {corpus} \\",
        f"    --max_documents {SAMPLE} --size {pieces(language)} --out {called['vocabulary']}",
        f"  bash launch/{called['recipe']}.sh",
    ]
    if epochs(language, steps) > EPOCHS * 1.5:
        lines.insert(
            2,
            "That is little text: take a smaller model, continue from mT5 "
            "(gin/ro_mt5x_base.gin shows how), or add other corpora (tasks/languages/public.py)",
        )
    return "\n".join(lines)


@guarded
def main(argv: list[str] | None = None) -> None:
    """Write the files of a language."""
    parser = arguments.parser("python -m tasks.new_language", __doc__.splitlines()[0])
    add = parser.add_argument
    add("language", type=arguments.text, help="a code (ces_Latn, cs) or an English name (czech)")
    add("--size", choices=PARTITIONS, default="base", help="of the model, default base")
    add("--overwrite", action="store_true", help="replace the files if they exist")
    flags: argparse.Namespace = parser.parse_args(argv)
    language = table.find(flags.language)
    print(report(language, flags.size, write(language, flags.size, ROOT, flags.overwrite)))


if __name__ == "__main__":
    main()
