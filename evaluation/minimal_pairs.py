"""Reads minimal pairs: a sentence, and the same with a mistake.

    read_hub("ron")                        # MultiBLiMP's pairs of a language
    read_file("pairs.jsonl")               # {"good": "Ana are mere.", "bad": "Ana au mere."}

MultiBLiMP has agreement in number, person and gender (Jumelet et al. 2025, arXiv:2504.02768).
"""

from typing import NamedTuple

from common.errors import UserError
from common.small_files import parse_json

MULTIBLIMP = "jumelet/multiblimp"
OTHER_PAIRS = "name a file of pairs with --pairs, or leave them out with --without pairs"
_RETRY_SECONDS = 60.0  # limit for a hub that does not respond


class Pair(NamedTuple):
    """A sentence, the same with a mistake, and the kind of the mistake."""

    good: str
    bad: str
    kind: str


def read_hub(language: str) -> list[Pair]:
    """Return MultiBLiMP's pairs of a language, named by ISO 639-3.

    Raises:
      UserError: it has none of this language, or the hub cannot be reached.
    """
    from tasks.corpus import excerpt  # with TensorFlow, which takes seconds
    from tasks.corpus.storage.retry import RetryPolicy
    from tasks.rows import Rows

    columns = {"good": "sen", "bad": "wrong_sen", "kind": "phenomenon"}
    retry = RetryPolicy(_RETRY_SECONDS)
    source = Rows(MULTIBLIMP, language, columns=columns, splits=("train",), retry_policy=retry)
    try:
        source.peek("train", limit_s=_RETRY_SECONDS)  # raises the mistakes in one sentence
        rows = excerpt.documents(source, "train", shuffle=False)
        return [Pair(row["good"], row["bad"], row["kind"]) for row in rows]
    except UserError as error:
        raise UserError(why=error.fault, to_set=OTHER_PAIRS) from error


def read_file(path: str) -> list[Pair]:
    """Return the pairs of a file with a JSON object a line: `good`, `bad` and perhaps `kind`.

    Raises:
      UserError: it cannot be read, or a line is not such an object.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = list(file)  # splitlines() would also split at U+2028, which JSON may contain
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(path, why=f"cannot be read: {error}") from error
    pairs = []
    for number, line in enumerate(lines, 1):
        try:
            row = parse_json(line)
            kind = row.get("kind")
            pair = Pair(row["good"], row["bad"], "" if kind is None else kind)
        except (ValueError, LookupError) as error:
            raise UserError(
                f"{path}:{number}", why='is not an object such as {"good": "…", "bad": "…"}'
            ) from error
        if not all(isinstance(text, str) and text.strip() for text in pair[:2]):
            raise UserError(f"{path}:{number}", why="has no text under good or bad")
        if not isinstance(pair.kind, str):
            raise UserError(f"{path}:{number}", why=f"has the kind {pair.kind!r}, which is no text")
        pairs.append(pair)
    return pairs
