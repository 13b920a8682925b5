"""How data of other kinds begin, so that a file that holds what its name does not say is named."""

import re
from typing import NamedTuple

_RENAMED = "end its name in .{}"
_LAID_OUT = "a document with a layout"
_PANDOC = "take its text out, pandoc -t plain OLD.{} -o NEW.txt"
_KINDS = [  # (how it begins, its suffix, what it is, what to do)
    (rb"\x1f\x8b", "gz", "gzip data", _RENAMED),
    (rb"\x28\xb5\x2f\xfd", "zst", "Zstandard data", _RENAMED),
    (rb"\xfd7zXZ\0", "xz", "xz data", _RENAMED),
    (rb"BZh[1-9]1AY&SY", "bz2", "bzip2 data", _RENAMED),
    (rb".{257}ustar", "tar", "a tar archive", _RENAMED),
    (rb"PAR1", "parquet", "a parquet file", _RENAMED),
    (rb"PK\x03\x04.{26}(\[Content_T|_rels/|docProps|word/|mimetype)", "docx", _LAID_OUT, _PANDOC),
    (rb"PK\x03\x04", "zip", "a zip archive", "unpack it"),
    (rb"7z\xbc\xaf\x27\x1c", "7z", "a 7z archive", "unpack it"),
    (rb"ARROW1|\xff{4}.{3}\0\x10\0\0\0", "arrow", "an Arrow file", "write it as parquet"),
    (rb"%PDF-", "pdf", _LAID_OUT, "take its text out, pdftotext OLD.pdf NEW.txt"),
    (rb"\{\\rtf", "rtf", _LAID_OUT, _PANDOC),
    (rb"\xd0\xcf\x11\xe0", "doc", _LAID_OUT, "take its text out, catdoc OLD.doc > NEW.txt"),
    (rb"version https://git-lfs", "lfs", "a pointer of Git LFS", "run git lfs pull"),
    (rb"\s*<(?i:!doctype html|html)", "html", "a web page", "check the address that gave it"),
]
BYTES = 512  # bytes of a file that are enough to see any signature


class Kind(NamedTuple):
    """What data are, "gzip data", and what to do about them, as an imperative."""

    what: str
    to_set: str


def what_else(head: bytes, *expected: str) -> Kind | None:
    """Return the kind of data that begin so; None for text, or for suffixes `expected` ("gz")."""
    for beginning, suffix, what, to_set in _KINDS:
        if suffix not in expected and re.match(beginning, head, re.DOTALL):
            return Kind(what, to_set.format(suffix))
    return None
