"""Text before and after the model that restores diacritics.

    python -m tasks.diacritics.restore read < text > lines.txt
    … t5x.infer on the task <task>_lines …
    python -m tasks.diacritics.restore write lines.txt predictions.jsonl > restored

`launch/restore_diacritics.sh` runs all three. Each line of the input becomes one line of the
output, with its own blanks if the model has kept the letters.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from command_line import quiet

    quiet.start()

import json
import sys
from collections.abc import Iterable, Iterator, Sequence

from command_line.guard import guarded, one_sentence
from tasks.text.normalize import normalize


def _letters(text: str) -> int:
    return len("".join(text.split()))


def onto(original: str, restored: str) -> str:
    """Return `original` with the letters of `restored`.

    If that has more or fewer letters, it is returned itself, with single blanks.
    """
    letters = "".join(restored.split())
    if len(letters) != _letters(original):
        return " ".join(restored.split())
    each = iter(letters)
    return "".join(letter if letter.isspace() else next(each) for letter in original)


def lines(texts: Sequence[str], predictions: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield each line restored, from pairs of its pieces and the model's outputs, in order."""
    rest = iter(predictions)
    for text in texts:
        length = _letters(text)
        found: list[str] = []
        while length > 0:
            piece, restored = next(rest, ("", ""))
            length -= _letters(piece)
            if not piece or length < 0:
                raise ValueError(f"the predictions are not those of the line {text[:80]!r}")
            found.append(restored)
        yield onto(text, " ".join(found))


def _read() -> None:
    """Print the lines of the input as the task reads them."""
    try:
        text = sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"the text is not UTF-8 (byte {error.start}): convert it first") from error
    # Without byte order marks, which the task would remove too.
    texts = [line.removesuffix("\r").lstrip("\ufeff") for line in text.split("\n")]
    if not "".join(texts).strip():
        raise ValueError("the input has no text to restore: pipe some in")
    for text in texts:
        print(normalize(text, whitespace=False))  # the task normalizes the rest


def _write(read: str, predictions: str) -> None:
    """Print the lines of the file `read`, restored by a file of predictions."""
    with open(read, encoding="utf-8", newline="\n") as file:
        texts = file.read().split("\n")[:-1]
    try:
        with open(predictions, encoding="utf-8", newline="\n") as file:
            found = [json.loads(line) for line in file]
        pairs = [(each["inputs"]["inputs_pretokenized"], each["prediction"]) for each in found]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{predictions} holds no predictions ({error}): name the .jsonl of t5x.infer"
        ) from error
    restored = list(lines(texts, pairs))
    for line in restored:
        print(line)
    lines_of = zip(texts, restored, strict=True)
    if short := sum(_letters(line) < _letters(text) for text, line in lines_of):
        lost = f"{short} of {len(texts)} lines have fewer letters than the input"
        remedy = "the model dropped some; --constrained keeps all of them"
        print(f"{lost}: {remedy}", file=sys.stderr)


@guarded
def main(arguments: Sequence[str]) -> None:
    """Run `read` or `write`."""
    with one_sentence():
        if list(arguments) == ["read"]:
            _read()
        elif len(arguments) == 3 and arguments[0] == "write":
            _write(*arguments[1:])
        else:
            raise ValueError("the command must be `read`, or `write LINES PREDICTIONS`")


if __name__ == "__main__":
    main(sys.argv[1:])
