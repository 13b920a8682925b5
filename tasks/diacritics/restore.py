"""Text in, text out: what stands before and behind a model that restores diacritics.

    python -m tasks.diacritics.restore read < text > lines.txt
    … t5x.infer on the task <task>_lines …
    python -m tasks.diacritics.restore write lines.txt predictions.jsonl > restored

`launch/restore_diacritics.sh` is all three. A line, which is what ends with a line feed, comes out
as one line, its blanks as they were if the model has kept the letters.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence

from tasks.text.normalize import normalize


def _letters(text: str) -> int:
    return len("".join(text.split()))


def onto(original: str, restored: str) -> str:
    """Returns `original` with the letters of `restored`.

    If that has more or fewer, it is returned alone, blanks single.
    """
    letters = "".join(restored.split())
    if len(letters) != _letters(original):
        return " ".join(restored.split())
    each = iter(letters)
    return "".join(letter if letter.isspace() else next(each) for letter in original)


def lines(texts: Sequence[str], predictions: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields each line restored.

    Args:
      texts: the lines.
      predictions: pairs of a piece of a line, its diacritics stripped or not, and what the model
        made of it; pieces of all lines in order, together all of their letters.

    Raises:
      ValueError: the pieces are not those of the lines.
    """
    rest = iter(predictions)
    for text in texts:
        length, found = _letters(text), []
        while length > 0:
            piece, restored = next(rest, (None, None))
            length -= _letters(piece or "")
            if piece is None or length < 0:
                raise ValueError(f"the predictions are not those of the line {text[:80]!r}")
            found.append(restored)
        yield onto(text, " ".join(found))


def main(arguments: Sequence[str]) -> int:
    """Does what the command line says; returns the exit status."""
    try:
        if list(arguments) == ["read"]:
            text = sys.stdin.buffer.read().decode().removesuffix("\n")
            # Without the encoding's mark, which the task takes off the beginning of any line.
            texts = [line.removesuffix("\r").lstrip("\ufeff") for line in text.split("\n")]
            if not "".join(texts).strip():
                raise ValueError("there is no text to restore: pipe some in")
            for text in texts:
                print(normalize(text, whitespace=False))  # the task normalizes the rest
        elif len(arguments) == 3 and arguments[0] == "write":
            with open(arguments[1], encoding="utf-8", newline="\n") as file:
                texts = file.read().split("\n")[:-1]
            with open(arguments[2], encoding="utf-8", newline="\n") as file:
                found = [json.loads(line) for line in file]
            pairs = ((each["inputs"]["inputs_pretokenized"], each["prediction"]) for each in found)
            restored = list(lines(texts, pairs))
            for line in restored:
                print(line)
            pairs = zip(texts, restored, strict=True)
            if short := sum(_letters(line) < _letters(text) for text, line in pairs):
                print(
                    f"{short} of {len(texts)} lines came back with fewer letters than went in: the "
                    "model has left some out; --constrained keeps all of them",
                    file=sys.stderr,
                )
        else:
            raise ValueError("say `read`, or `write LINES PREDICTIONS`")
    except UnicodeDecodeError as error:
        print(
            f"Error: the text is no UTF-8 (byte {error.start}): convert it first", file=sys.stderr
        )
        return 2
    except ValueError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
