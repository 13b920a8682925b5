"""Reads a small file of unknown origin, or refuses it in one sentence.

    with parsing(path, "delete it"):               # UserError for anything that goes wrong
        step = int(read_json(path)["step"])        # JSON is always an object, here a dict
    parse_json('{"step": 1}')                      # raises ValueError alone

Paths are local or under gs://; a pipe or a device is refused, as reading one may never end.
"""

import contextlib
import json
import os
import re
import stat
import tokenize
import zipfile
from collections.abc import Iterator
from typing import Any

from etils import epath

from common.errors import UserError, first_line
from common.tables import data_size

_LARGEST = 2**28  # bytes; the largest known, a tokenizer.json, has 35 MB
# What parsers raise for a file that is missing, or whose content no writer writes. Other errors may
# pass at the next try.
_UNREADABLE = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError),
    *(FileNotFoundError, IsADirectoryError, NotADirectoryError, EOFError, zipfile.BadZipFile),
    *(SyntaxError, tokenize.TokenError),
)
Path = str | os.PathLike[str]


@contextlib.contextmanager
def parsing(path: Path, advice: str, kind: type[UserError] = UserError) -> Iterator[None]:
    """Turn what a parser raises for a damaged or missing file into an error of `kind`.

    The error names `path`, and `advice` is what to do. Errors of `kind` pass unchanged.
    """
    try:
        yield
    except kind:
        raise
    except _UNREADABLE as error:
        how = "missing" if isinstance(error, FileNotFoundError) else "cut off or damaged"
        reason = f"it has no {error}" if isinstance(error, KeyError) else first_line(error)[:200]
        raise kind(os.fspath(path), why=f"is {how} ({reason})", to_set=advice) from error


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises what `read_bytes` and `parse_json` raise."""
    return parse_json(read_bytes(path))


def parse_json(text: str | bytes) -> dict[str, Any]:
    """Return a JSON object, or raise ValueError for any other text."""
    text = text if isinstance(text, str) else text.decode("utf-8-sig")
    try:
        content = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError(f"it is no JSON object but {text[:20]!r}")
    if re.search(r"\\u[dD]", text):  # half of a pair, which could not be written anywhere
        json.dumps(content, ensure_ascii=False).encode()
    return content


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
      OSError: it cannot be read.
      ValueError: it is neither a file nor small.
    """
    if os.path.islink(path) and not os.path.exists(path):
        raise FileNotFoundError("its link leads nowhere")
    if "://" not in os.fspath(path) and not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("it is no file")
    file = epath.Path(path)
    if (size := file.stat().length) > _LARGEST:
        raise ValueError(f"it has {data_size(size)}, and at most {data_size(_LARGEST)} are read")
    return file.read_bytes()


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file. Raises what `read_bytes` raises."""
    return read_bytes(path).decode()
