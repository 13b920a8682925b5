"""Which encoding a text is in that is no UTF-8, by the letters that its language writes most.

likely_encoding("Рядок про місто".encode("cp1251"))      # "WINDOWS-1251", as iconv calls it
not_utf8([b"un text", b"\xe7"])                           # [b"\xe7"]
raise error(file, bad=366, read=400)                     # what to convert it from
"""

import itertools
from collections.abc import Iterable

from common.errors import UserError
from tasks.corpus.storage import files
from tasks.corpus.storage.files import CorpusFile

MOST_BAD = 0.5  # share of the records
_READ_BYTES = 1 << 16
_LEAST = 0.5  # of the usual share
# (encodings, the share that the letters usually have of all beyond ASCII, frequent letters of each
# language); of Latin alphabets all letters beyond ASCII.
_ALPHABETS = (
    (
        "WINDOWS-1252",
        1.0,
        "éèàùâêîôûçëïœ äöüß áéíóúñü áâãàçéêíóôõú àèéìòù åäö æøå ëéïóö áéíóúýþæöð",
    ),
    (
        "WINDOWS-1250 ISO-8859-2",
        1.0,
        "ąćęłńóśźż áčďéěíňóřšťúůýž áäčďéíĺľňóôŕšťúýž áéíóöőúüű ăâîşţ čćđšž",
    ),
    ("WINDOWS-1254", 1.0, "çğıöşü"),
    ("WINDOWS-1257", 1.0, "ąčęėįšųūž āčēģīķļņšūž äõöüšž"),
    ("WINDOWS-1251 KOI8-U CP866", 0.78, "оеаинтсрвлкмдпу"),
    ("WINDOWS-1253", 0.82, "αοιετσνηυρπκμλόί"),
    ("WINDOWS-1255", 0.72, "יוהלאברתשמנ"),
    ("WINDOWS-1256", 0.72, "اليمنتروبعدهـ"),
    ("CP874", 0.7, "านรอกเงมยลวดส่้"),
    ("SHIFT_JIS EUC-JP", 0.35, "のにはをたがでてとしれさいるなっ"),
    ("EUC-KR", 0.25, "이다의는에을가고하를한로지사그"),
    ("GB18030 BIG5", 0.12, "的一是不了在人有我他中大上的第"),
)


def likely_encoding(data: bytes) -> str:
    """Return the encoding of a text, by its name in iconv, "" if none is likely."""
    # By encoding how usual its letters are, and how few they are: of two alphabets that have all
    # letters of the text the smaller one says more.
    scores = {"": (_LEAST, 0)}
    for encodings, usual, alphabets in _ALPHABETS:
        for encoding, alphabet in itertools.product(encodings.split(), alphabets.split()):
            try:
                text = data.decode(encoding).lower()
            except UnicodeDecodeError:
                break
            beyond = sum(not character.isascii() for character in text)
            share = sum(map(text.count, set(alphabet))) / max(beyond, 1)
            score = min(share / usual, 1.0), -len(alphabet)
            scores[encoding] = max(scores.get(encoding, score), score)
    return max(scores, key=scores.__getitem__)


def not_utf8(lines: Iterable[bytes]) -> list[bytes]:
    """Return the lines that are not UTF-8."""
    return [line for line in lines if not _is_utf8(line)]


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def error(file: CorpusFile, bad: int, read: int) -> UserError:
    """Return the error of a file in which so many records of those read are not UTF-8."""
    why = f"has {bad:,} of {read:,} records that are not UTF-8"
    if file.kind in ("parquet", "tar"):
        return UserError(str(file), why=why, to_set="write its text in UTF-8")
    with files.open_stream(file) as stream:
        lines = stream.read(_READ_BYTES).splitlines()
    encoding = likely_encoding(b"\n".join(not_utf8(lines)))
    return UserError(
        str(file),
        why=why + (f" but seem to be {encoding}" if encoding else ""),
        to_set=f"convert it, iconv -f {encoding or 'ENCODING'} -t UTF-8 OLD > NEW",
    )
