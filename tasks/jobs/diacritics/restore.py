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

from common.errors import UserError, guarded
from common.gin_reader import Bindings
from common.small_files import parse_json, parsing, read_text
from tasks import vocabularies
from tasks.jobs.diacritics import align
from tasks.jobs.diacritics.letters import alphabet
from tasks.text.normalize import normalize

Prediction = tuple[str, str, str]  # a piece of a line, the model's output for it, their language
# What T5Config says of the parameters, and numbers that the trainer checks with them.
_NETWORK = (
    *("vocab_size", "emb_dim", "num_heads", "head_dim", "mlp_dim", "mlp_activations", "dtype"),
    *("num_encoder_layers", "num_decoder_layers", "logits_via_embedding"),
    *("float32_attention_logits", "own_relative_bias"),
)


def settings(run: str) -> str:
    """Return gin settings that decode with a run's model, made of literals in its `config.gin`.

    The folder may be somebody else's: its gin is read, not executed, and of its text only sizes,
    the vocabulary, the lengths and the name of the task are used. Raise UserError if one lacks.
    """
    config = os.path.join(run, "config.gin")
    with parsing(config, "name the folder of a run"):
        bindings = Bindings.read(read_text(config))
    name, lengths = bindings.macro("MIXTURE_OR_TASK_NAME"), bindings.macro("TASK_FEATURE_LENGTHS")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.:]+", name):
        raise UserError(
            f"{config} names no task: it sets no MIXTURE_OR_TASK_NAME of letters and digits"
        )
    found = {"MIXTURE_OR_TASK_NAME": f"{name}_lines", "TASK_FEATURE_LENGTHS": lengths}
    network = bindings.of("T5Config")
    found |= {f"network.T5Config.{k}": v for k, v in network.items() if k in _NETWORK}
    kind = "ByteVocabulary" if bindings.binds_bytes() else "SentencePieceVocabulary"
    vocabulary = bindings.of(kind)
    if "extra_ids" in vocabulary:
        found[f"seqio.{kind}.extra_ids"] = vocabulary["extra_ids"]
    if kind == "SentencePieceVocabulary":
        path = _vocabulary(run, vocabulary.get("sentencepiece_model_file"))
        found["seqio.SentencePieceVocabulary.sentencepiece_model_file"] = path
        for function in dir(vocabularies):  # one of them is the task's, which has to be equal
            if function.endswith("_model"):
                found[f"tasks.vocabularies.{function}.path"] = path
    if missing := [setting for setting, value in found.items() if value is None]:
        raise UserError(f"{config} has no plain value of {', '.join(missing)}")
    base = "byt5" if kind == "ByteVocabulary" else "t5_1_1"
    return "\n".join(
        [
            "from __gin__ import dynamic_registration",
            *(
                "import seqio",
                "import tasks.jobs.diacritics",
                "from t5x.examples.t5 import network",
            ),
            f"include 't5x/examples/t5/{base}/base.gin'",
            *(f"{setting} = {value!r}" for setting, value in found.items()),
        ]
    )


def _vocabulary(run: str, bound: str | None) -> str | None:
    """Return the path that the run's gin binds, or its copy where that file is not the same."""
    copy = os.path.join(os.path.abspath(run), "vocabulary.model")
    if not os.path.exists(copy):
        return bound
    path = vocabularies.resolve(str(bound))
    same = os.path.isfile(path) and filecmp.cmp(path, copy, shallow=False)
    return bound if same else copy


def _letters(text: str) -> int:
    return len("".join(text.split()))


def onto(original: str, restored: str) -> str:
    """Return `original` with the letters of `restored`, which has as many."""
    letters = iter("".join(restored.split()))
    return "".join(letter if letter.isspace() else next(letters) for letter in original)


def lines(texts: Sequence[str], predictions: Iterable[Prediction]) -> Iterator[str]:
    """Yield each line restored, from the predictions of its pieces, in order."""
    rest = iter(predictions)
    for text in texts:
        length = _letters(text)
        found: list[str] = []
        while length > 0:
            piece, decoded, language = next(rest, ("", "", "ro"))
            length -= _letters(piece)
            if not piece or length < 0:
                raise UserError(f"the predictions are not those of the line {text[:80]!r}")
            found.append(align.onto(piece, decoded, alphabet(language)))
        yield onto(text, " ".join(found))


def _read() -> None:
    """Print the lines of the input as the task reads them."""
    try:
        text = sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"the text is not UTF-8 (byte {error.start}): convert it first") from error
    # Without byte order marks, which the task would remove too.
    texts = [line.removesuffix("\r").lstrip("\ufeff") for line in text.split("\n")]
    if not "".join(texts).strip():
        raise UserError("the input has no text to restore: pipe some in")
    for text in texts:
        print(normalize(text, whitespace=False))  # the task normalizes the rest


def _write(read: str, predictions: str) -> None:
    """Print the lines of the file `read`, restored by a file of predictions."""
    with open(read, encoding="utf-8", newline="\n") as file:
        texts = file.read().split("\n")[:-1]
    try:
        with open(predictions, encoding="utf-8", newline="\n") as file:
            found = [parse_json(line) for line in file]
        fields = ("inputs_pretokenized", "language_pretokenized")
        given = [[each["inputs"][field] for field in fields] for each in found]
        made = [each["prediction"] for each in found]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{predictions} holds no predictions ({error}): name the .jsonl of t5x.infer"
        ) from error
    pieces = [(piece, text, code) for (piece, code), text in zip(given, made, strict=True)]
    for line in lines(texts, pieces):
        print(line)


@guarded
def main(arguments: Sequence[str]) -> None:
    """Run `settings`, `read` or `write`."""
    match list(arguments):
        case ["read"]:
            _read()
        case ["settings", run]:
            print(settings(run))
        case ["write", read, predictions]:
            _write(read, predictions)
        case _:
            raise UserError(
                "the command must be `settings RUN`, `read`, or `write LINES PREDICTIONS`"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
