"""Records of lines and of JSON texts, and the value at a path in a record.

    json_records([b'{"text": "a"}', b'{"text": "b"} {"text": "c"}'])     # three records
    value({"meta": {"text": "a"}}, "meta.text")                           # "a"

A record is a dict, or MALFORMED, NOT_UTF8 or TOO_LONG.
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, cast

MALFORMED, NOT_UTF8, TOO_LONG = object(), object(), object()
UNUSABLE = (MALFORMED, NOT_UTF8, TOO_LONG)
UNREADABLE = "\udcff"  # replaces a line of a paragraph that is not UTF-8

_READ_BYTES = 1 << 20
_BETWEEN = re.compile(r"[\s,\x1e]*")  # records; RS begins each of them in RFC 7464
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_decode = json.JSONDecoder().raw_decode


def text_record(line: Any) -> Any:
    """Return a line of plain text as a record; TOO_LONG stays so."""
    if line is TOO_LONG:
        return line
    try:
        return {"text": line.rstrip(b"\r\n").decode("utf-8-sig")}
    except UnicodeDecodeError:
        return NOT_UTF8


def columns_of(record: Any, numbers: Sequence[str]) -> Any:
    """Return the columns of a line of text that tabs separate, by number, "1" is the first.

    Without numbers, and of a line that is no text, it is the record itself.
    """
    if not numbers or record in UNUSABLE:
        return record
    columns = record["text"].split("\t")
    return {n: columns[int(n) - 1] for n in numbers if 0 < int(n) <= len(columns)}


def json_records(lines: Iterable) -> Iterator:
    """Yield the records of lines, each an object, several, an array of them, or blank."""
    for line in lines:
        if line is TOO_LONG:
            yield line
            continue
        try:
            text = line.decode("utf-8-sig")
            record = json.loads(text)
        except UnicodeDecodeError:
            yield NOT_UTF8
        except RecursionError:  # raised for deep nesting
            yield MALFORMED
        except ValueError:
            yield from _several(text)
        else:
            if isinstance(record, dict):
                yield record
            elif record and isinstance(record, list) and isinstance(record[0], dict):
                yield from (item if isinstance(item, dict) else MALFORMED for item in record)
            else:
                yield MALFORMED


def _several(text: str) -> Iterator:
    """Yield the records of a line that holds several; MALFORMED if the rest cannot be parsed."""
    at = _beyond_separators(text, 0)
    while at < len(text):
        try:
            record, at = _decode(text, at)
        except (ValueError, RecursionError):
            yield MALFORMED
            return
        yield record if isinstance(record, dict) else MALFORMED
        at = _beyond_separators(text, at)


def json_text_records(stream: BinaryIO, longest: int) -> Iterator:
    """Yield the records of arrays or of objects one after the other, in any layout.

    No more than two records are held, of at most `longest` bytes each.

    Raises:
      json.JSONDecodeError: it does not end, or something is no JSON.
      UnicodeDecodeError: it is not UTF-8.
    """
    decode = codecs.getincrementaldecoder("utf-8-sig")().decode
    text, at, depth, ended, n = "", 0, 0, False, _READ_BYTES
    while True:
        at = _beyond_separators(text, at)
        if (bracket := text[at : at + 1]) and bracket in "[]":
            depth, at = depth + (1 if bracket == "[" else -1), at + 1
            if depth < 0:
                raise json.JSONDecodeError("an array ends that did not begin", text, at - 1)
        elif parsed := _item(text, at, ended):
            item, at = parsed
            n = _READ_BYTES
            yield item if isinstance(item, dict) else MALFORMED
        elif ended or len(text) - at > longest:
            if at < len(text):
                raise json.JSONDecodeError(f"no JSON value: {text[at : at + 20]!r}…", text, at)
            if depth:
                raise json.JSONDecodeError("the array does not end", text, at)
            return
        else:
            data = stream.read(n)
            ended, n = not data, 2 * n
            text, at = text[at:] + decode(data, ended), 0


def _item(text: str, at: int, ended: bool) -> tuple[Any, int] | None:
    """Return a JSON value and its end, None if it has none; MALFORMED if nested too deeply."""
    try:
        item, end = _decode(text, at)
    except ValueError:
        return None
    except RecursionError:
        beyond = _end_of_item(text, at)
        return (MALFORMED, beyond) if beyond else None
    return None if end == len(text) and not ended and text[-1] not in "}]" else (item, end)


def _beyond_separators(text: str, at: int) -> int:
    return cast(re.Match, _BETWEEN.match(text, at)).end()


def _end_of_item(text: str, start: int) -> int | None:
    """Return where the JSON array or object that begins at `start` ends."""
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text, start):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if not depth:
            return token.end()
    return None


def value(record: Mapping, path: str) -> Any:
    """Return the value of a column, or at a path into objects; None if there is none.

    Of a list on the path it is the list of the values in its items.
    """
    if path in record:
        return record[path]
    column, _, path_inside = path.partition(".")
    inside = record.get(column) if path_inside else None
    if isinstance(inside, list):
        return [value(item, path_inside) if isinstance(item, Mapping) else None for item in inside]
    return value(inside, path_inside) if isinstance(inside, Mapping) else None


def paths(record: Mapping) -> Iterator[str]:
    """Yield the names of the columns, and the paths in those that hold objects."""
    for name, inner in record.items():
        yield str(name)
        first = inner[0] if isinstance(inner, list) and inner else inner
        if isinstance(first, Mapping):
            yield from (f"{name}.{path}" for path in paths(first))
