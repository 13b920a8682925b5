"""Text before and after the model that restores diacritics, and the settings of that model.

    python -m tasks.jobs.diacritics.restore settings runs/x > model.gin
    python -m tasks.jobs.diacritics.restore read < text > lines.txt
    … t5x.infer with model.gin, on the task <task>_lines …
    python -m tasks.jobs.diacritics.restore write lines.txt predictions.jsonl > restored

`launch/restore_diacritics.sh` runs all four. Each line of the input becomes one line of the output
with the same letters and spaces; only diacritics are added.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import filecmp
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from common.errors import UserError, guarded
from common.gin_reader import Bindings
from common.small_files import parse_json, parsing, read_text
from tasks import vocabularies
from tasks.jobs.diacritics.letters import alphabet
from tasks.text.normalize import normalize

# The settings of T5Config that decide the parameters and the numbers.
_NETWORK = (
    *("vocab_size", "emb_dim", "num_heads", "head_dim", "mlp_dim", "mlp_activations", "dtype"),
    *("num_encoder_layers", "num_decoder_layers", "logits_via_embedding"),
    *("float32_attention_logits", "own_relative_bias"),
)


class Prediction(NamedTuple):
    """A piece of a line, what the model made of it, and their language."""

    piece: str
    decoded: str
    language: str = "ro"


def settings(run: str) -> str:
    """Return gin settings that decode with a run's model, made of literals in its `config.gin`.

    The folder may be somebody else's. Its gin is read, not executed, and only sizes, the
    vocabulary, the lengths and the name of the task are used.

    Raises:
      UserError: one of these is missing, or it is the run of a T5Gemma 2.
    """
    config = os.path.join(run, "config.gin")
    with parsing(config, "name the folder of a run"):
        bindings = Bindings.read(read_text(config))
    if bindings.names("T5Gemma2"):
        why = "is of a T5Gemma 2, and only a T5 restores diacritics"
        raise UserError(config, why=why, to_set="name the run of a T5")
    task, lengths = bindings.macro("MIXTURE_OR_TASK_NAME"), bindings.macro("TASK_FEATURE_LENGTHS")
    if not isinstance(task, str) or not re.fullmatch(r"[A-Za-z0-9_.:]+", task):
        why = "names no task: it sets no MIXTURE_OR_TASK_NAME of letters and digits"
        raise UserError(config, why=why)
    values = {"MIXTURE_OR_TASK_NAME": f"{task}_lines", "TASK_FEATURE_LENGTHS": lengths}
    for name, value in bindings.of("T5Config").items():
        if name in _NETWORK:
            values[f"network.T5Config.{name}"] = value
    family, kind = "t5_1_1", "SentencePieceVocabulary"
    if bindings.binds_bytes():
        family, kind = "byt5", "ByteVocabulary"
    vocabulary = bindings.of(kind)
    if "extra_ids" in vocabulary:
        values[f"seqio.{kind}.extra_ids"] = vocabulary["extra_ids"]
    if family == "t5_1_1":
        path = _vocabulary(run, vocabulary.get("sentencepiece_model_file"))
        values["seqio.SentencePieceVocabulary.sentencepiece_model_file"] = path
        for function in dir(vocabularies):  # one of them is the task's, which has to be equal
            if function.endswith("_model"):
                values[f"tasks.vocabularies.{function}.path"] = path
    if missing := [setting for setting, value in values.items() if value is None]:
        raise UserError(config, why=f"has no plain value of {', '.join(missing)}")
    return "\n".join(
        [
            "from __gin__ import dynamic_registration",
            "import seqio",
            "import tasks.jobs.diacritics",
            "from t5x.examples.t5 import network",
            f"include 't5x/examples/t5/{family}/base.gin'",
            *(f"{setting} = {value!r}" for setting, value in values.items()),
        ]
    )


def _vocabulary(run: str, path: str | None) -> str | None:
    """Return the path that the run's gin binds, or its copy where that file is not the same."""
    copy = os.path.join(os.path.abspath(run), "vocabulary.model")
    if not os.path.exists(copy):
        return path
    file = vocabularies.resolve(str(path))
    is_same = os.path.isfile(file) and filecmp.cmp(file, copy, shallow=False)
    return path if is_same else copy


def _length(text: str) -> int:
    """Return the number of characters that are no blanks."""
    return len("".join(text.split()))


def lines(texts: Sequence[str], predictions: Iterable[Prediction]) -> Iterator[str]:
    """Yield each line restored, with its own blanks, from the predictions of its pieces, in order.

    Raises:
      UserError: they are of another text.
    """
    remaining = iter(predictions)
    for text in texts:
        length, restored = _length(text), ""
        while length > 0:
            piece, decoded, language = next(remaining, Prediction("", ""))
            length -= _length(piece)
            if not piece or length < 0:
                raise UserError(why=f"the predictions are not those of the line {text[:80]!r}")
            restored += alphabet(language).transfer(decoded, piece)
        letters = iter("".join(restored.split()))
        yield "".join(letter if letter.isspace() else next(letters) for letter in text)


def _read() -> None:
    """Print the lines of the input as the task reads them."""
    try:
        text = sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        why = f"the text is not UTF-8 (byte {error.start})"
        raise UserError(why=why, to_set="convert it first") from error
    # Without byte order marks, which the task would remove too.
    texts = [line.removesuffix("\r").lstrip("\ufeff") for line in text.split("\n")]
    if not "".join(texts).strip():
        raise UserError(why="the input has no text to restore", to_set="pipe some in")
    for text in texts:
        print(normalize(text, whitespace=False))  # the task normalizes the rest


def _write(texts_file: str, predictions_file: str) -> None:
    """Print the lines of a file, restored by a file of predictions."""
    with open(texts_file, encoding="utf-8", newline="\n") as file:
        texts = file.read().split("\n")[:-1]
    try:
        with open(predictions_file, encoding="utf-8", newline="\n") as file:
            predictions = [_prediction(parse_json(line)) for line in file]
    except (ValueError, KeyError, TypeError) as error:
        why = f"holds no predictions ({error})"
        raise UserError(predictions_file, why=why, to_set="name the .jsonl of t5x.infer") from error
    for line in lines(texts, predictions):
        print(line)


def _prediction(row: dict) -> Prediction:
    inputs = row["inputs"]
    piece, language = inputs["inputs_pretokenized"], inputs["language_pretokenized"]
    return Prediction(piece, row["prediction"], language)


@guarded
def main(arguments: Sequence[str]) -> None:
    """Run `settings`, `read` or `write`."""
    match list(arguments):
        case ["read"]:
            _read()
        case ["settings", run]:
            print(settings(run))
        case ["write", texts_file, predictions_file]:
            _write(texts_file, predictions_file)
        case _:
            raise UserError(
                "the command",
                " ".join(arguments),
                "which is none of three",
                "use `settings RUN`, `read`, or `write LINES PREDICTIONS`",
            )


if __name__ == "__main__":
    main(sys.argv[1:])
