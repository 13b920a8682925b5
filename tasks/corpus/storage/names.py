"""What the name of a file says about its content.

    recognize("/data/ro.jsonl.zst")     # CorpusFile("/data/ro.jsonl.zst", "jsonl", "zst")
    is_beside("train.sha256.txt")       # True

A name gives the format and the compression, or shows that the file is no data.
"""

import json
import os
import re
import shlex

from common.errors import ROOT, UserError
from common.secrets import public
from tasks.corpus.storage.decompress import COMPRESSIONS
from tasks.corpus.storage.files import CorpusFile

LIST = "@"  # before the address of a list of addresses
KINDS = {
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "json": "json",
    "csv": "csv",
    "tsv": "tsv",
    "txt": "text",
    "text": "text",
    "parquet": "parquet",
    "tar": "tar",
}
# Splits, and what they are called.
SPLITS = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
_TARS = {"tgz": "gz", "txz": "xz", "tbz2": "bz2", "tzst": "zst"}  # {suffix: compression}
# Formats that are not read, and a command that writes those that are.
OTHER_FORMATS = {
    "zip": "unzip {0} -d FOLDER",
    "7z": "7z x {0} -oFOLDER",
    "rar": "7z x {0} -oFOLDER",
    "lz4": "lz4 -d {0}",
}
# The same by Python.
_BY_PYTHON = {
    "arrow": 'import datasets; datasets.Dataset.from_file({0}).to_parquet("NEW.parquet")',
    "feather": 'import pandas; pandas.read_feather({0}).to_parquet("NEW.parquet")',
    "xlsx": 'import pandas; pandas.read_excel({0}).to_csv("NEW.csv")',
}
# Documents with a layout, and a command that takes their text out; beside a corpus they may lie.
_LAID_OUT = {"pdf": "pdftotext {0} NEW.txt", "doc": "catdoc {0} > NEW.txt"}
_LAID_OUT |= dict.fromkeys(
    ("docx", "odt", "rtf", "epub", "html", "htm"), "pandoc -t plain {0} -o NEW.txt"
)
_OTHER_SUFFIXES = (
    *OTHER_FORMATS,
    *_BY_PYTHON,
    "part",
    "partial",
    "crdownload",
    "incomplete",
    "aria2",
)
# How the names of files end that lie beside a corpus; lists of packages and words have no more.
_BESIDE = re.compile(
    r"(^|[-_. ])((?P<checksum>(md5|sha\d*|crc32|checksum)(s|sums?)?(\.txt)?)"
    r"|((train(er|ing)?|dataset)[-_.])?(logs?|readme|licen[cs]e|copying|notice|manifest|meta|"
    r"metadata|stats|statistics|infos?|config|state|args|arguments|schema|index"
    r"|(?<![-_. ])(requirements|constraints|vocab(ulary)?|word[-_]?list|(stop)?words))([-_.]?\d+)*"
    r"\.(txt|json))$",
    re.IGNORECASE,
)


def recognize(url: str, kind: str | None = None) -> CorpusFile | None:
    """Return the file that `url` names, by its suffixes; None if it is not a corpus file.

    With a `kind`, only the suffix of a compression is looked at.
    """
    name = name_of(url).lower()
    stem, _, suffix = name.rpartition(".")
    if suffix in _TARS and not kind:
        return CorpusFile(url, "tar", _TARS[suffix])
    compression = suffix if suffix in COMPRESSIONS else ""
    _, dot, suffix = (stem if compression else name).rpartition(".")
    kind = kind or (KINDS.get(suffix) if dot else None)  # "text" and "owner/text" have none
    return CorpusFile(url, kind, compression) if kind else None


def name_of(url: str) -> str:
    """Return the name of a file, without its folder and, of an address, without its query."""
    return (url.split("?")[0] if "://" in url else url).rpartition("/")[2]


def is_file(url: str) -> bool:
    """Return whether a name is of a file of data, also in a format that is not read."""
    return recognize(url) is not None or is_other(url)


def is_files(corpus: str) -> bool:
    """Return whether a corpus is files: a path, address, pattern or list, and no folder or name."""
    if corpus.startswith(LIST):
        return True
    if "://" in corpus:
        return recognize(corpus) is not None
    path = os.path.expanduser(corpus)
    return (
        path.startswith(("/", ".")) and ("*" in path or is_file(path)) and not os.path.isdir(path)
    )


def absolute_path(corpus: str) -> str:
    """Return a corpus of the command line: a local path made absolute, anything else unchanged."""
    path = os.path.expanduser(corpus)
    is_here = "*" in corpus or is_file(corpus) or os.path.exists(path)
    is_path = is_here and "://" not in corpus and not corpus.startswith(LIST)
    return os.path.abspath(path) if is_path else corpus


def portable_path(path: str) -> str:
    """Return a path in the repository as one from its root, ./texts, and others unchanged.

    The files that commands write for their user have it, since every worker has a clone of its own.
    """
    return f"./{os.path.relpath(path, ROOT)}" if path.startswith(f"{ROOT}/") else path


def is_other(name: str) -> bool:
    """Return whether a name is of data in a format that is not read, or of a part of data."""
    return name.lower().rpartition(".")[2] in _OTHER_SUFFIXES


def is_beside(name: str, entirely: bool = False) -> bool:
    """Return whether a name is of a checksum, a log or a note beside a corpus.

    With `entirely` it is no more than that: "readme.txt", but not "git-config.txt".
    """
    match = _BESIDE.search(name)
    return match is not None and not (entirely and match.start() and not match["checksum"])


def data_in(url: str) -> CorpusFile | None:
    """Return the file, None if its name says that it lies beside a corpus or is none."""
    return None if is_beside(name_of(url)) else recognize(url)


def conversion(suffix: str, address: str) -> str:
    """Return the command line that converts a file in another format, "" if none is known."""
    if code := _BY_PYTHON.get(suffix):
        return f"python -c {shlex.quote(code.format(json.dumps(address, ensure_ascii=False)))}"
    return (OTHER_FORMATS | _LAID_OUT).get(suffix, "").format(shlex.quote(address))


def not_read(url: str) -> UserError:
    """Return the error to raise for a file whose name has no known suffix."""
    name = name_of(url).lower()
    address = public(url)
    if command := conversion(name.rpartition(".")[2], address):
        to_set = f"convert it, {command}"
        return UserError(address, why="is of a format that is not read", to_set=to_set)
    if is_other(name):
        return UserError(address, why="is not complete", to_set="fetch it again, or delete it")
    kinds = ", ".join(f".{kind}" for kind in KINDS)
    return UserError(
        address,
        why=f"is of no known format: names of data end in one of {kinds}, plus "
        f"{', '.join('.' + c for c in COMPRESSIONS)} if compressed",
        to_set="if it is plain text, end its name in .txt; if it is a list of addresses, write "
        f"{LIST + address!r}",
    )
