"""What the first bytes of a file show: its encoding, its layout, or that it is something else.

    look(b"\\xff\\xfea\\0", "text")                # Contents("text", "utf-16")
    look(b'[{"text": "a"},', "jsonl")            # Contents("json", "utf-8"): one array
    with_contents(stream, file)                  # its contents, and a stream of it in UTF-8

A name promises a format. A file that holds another one is refused in a sentence that names it.
"""

import codecs
import itertools
import json
import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from common.errors import UserError
from tasks.corpus.records.values import json_records
from tasks.corpus.storage.chunks import stream_of
from tasks.corpus.storage.files import CorpusFile
from tasks.corpus.storage.signatures import what_else

HEAD_BYTES = 4096
_READ_BYTES = 1 << 16
_SMALL = 9  # above the first halves of Latin, Greek, Cyrillic, Hebrew and Arabic in UTF-16
_BOMS = {  # UTF-32 comes first, since its mark begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class Contents(NamedTuple):
    """A format, one of `names.KINDS`, and an encoding: utf-8, utf-16 or utf-32."""

    kind: str
    encoding: str


def look(head: bytes, kind: str, on_web: bool = False) -> Contents:
    """Return a text file's format and encoding, from its first HEAD_BYTES bytes.

    Raises:
      UserError: it is not of this kind. The message does not name the file.
    """
    for mark, encoding in _BOMS.items():
        if head.startswith(mark):
            text = head[: len(head) // 4 * 4].decode(encoding, "ignore")
            return Contents(_layout(text.encode("utf-8", "replace"), kind), encoding)
    if other := what_else(head, *(() if on_web or kind != "text" else ("html",))):
        raise UserError(why=f"is {other.what}", to_set=other.to_set)
    if head.count(0) > 0.9 * len(head):
        why = "begins with NUL, as a file of which not all was written"
        raise UserError(why=why, to_set="write it again")
    if unmarked := _unmarked(head):
        raise UserError(
            why=f"looks like {unmarked} without a byte order mark",
            to_set=f"convert it, iconv -f {unmarked} -t UTF-8 OLD > NEW",
        )
    head = head.removeprefix(codecs.BOM_UTF8)
    if kind == "text" and b"\r" in head and b"\n" not in head:
        to_set = "convert it, tr '\\r' '\\n' < OLD > NEW"
        raise UserError(why="ends its lines by CR alone", to_set=to_set)
    return Contents(_layout(head, kind), "utf-8")


def _unmarked(head: bytes) -> str | None:
    """Return the encoding of more than a byte that a text seems to have."""
    nuls, half = [head[i::2].count(0) for i in (0, 1)], len(head) // 2
    for i, name in enumerate(("UTF-16BE", "UTF-16LE")):
        if nuls[i] >= max(half / 100, 10 * nuls[1 - i], 1) and (nuls[i] > 2 or half < 8):
            # Stray NULs are no UTF-16. Of letters whose halves are UTF-8 too, one half is small.
            small = sum(byte < _SMALL for byte in head[i::2])
            if small > 0.7 * half or not _is_utf8(head):
                return name
    if sum(nuls) > 0.6 * len(head):
        return "UTF-32BE" if head[0] == 0 else "UTF-32LE"
    return None


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # which may end in a letter
    except UnicodeDecodeError:
        return False
    return True


def _layout(head: bytes, kind: str) -> str:
    """Return "jsonl" for JSON with a record a line, "json" for any other; other kinds as given."""
    if kind not in ("json", "jsonl"):
        return kind
    text = head.lstrip(b" \t\r\n\x1e")
    if re.match(rb"\[?\s*\{\s*'", text):
        raise UserError(
            why="has Python's quotes, which are no JSON",
            to_set="write each record by json.dumps(record)",
        )
    first, is_complete, _ = text.partition(b"\n")
    if not is_complete:
        return "json" if text.startswith(b"[") else "jsonl"
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        in_lines = any(isinstance(record, dict) for record in json_records([first]))
        is_open = first.rstrip().endswith((b"{", b"[", b",")) or text.startswith(b"[")
        return "json" if is_open and not in_lines else "jsonl"
    return "jsonl"


def with_contents(stream: BinaryIO, file: CorpusFile) -> tuple[Contents, BinaryIO]:
    """Return a text file's format and encoding, and a stream of its text in UTF-8.

    Where UTF-16 or UTF-32 is damaged, that stream is not UTF-8 either.

    Raises:
      UserError: it is something else.
    """
    head = stream.read(HEAD_BYTES)
    described = check_head(head, file)
    data: Iterator[bytes] = itertools.chain([head], iter(lambda: stream.read(_READ_BYTES), b""))
    if described.encoding != "utf-8":
        text = codecs.iterdecode(data, described.encoding, "surrogatepass")
        data = codecs.iterencode(text, "utf-8", "surrogatepass")
    return described, stream_of(data)


def check_head(head: bytes, file: CorpusFile) -> Contents:
    """Call `look`, and name the file in its error."""
    try:
        return look(head, file.kind, file.on_web)
    except UserError as error:
        raise UserError(str(file), why=error.why, to_set=error.to_set) from None
