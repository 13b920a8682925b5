"""Of every odd file each document is read, or a sentence names what it is and what to do."""

import bz2
import csv
import dataclasses
import gzip
import io
import json
import lzma
import tarfile
import tracemalloc
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from common.errors import UserError
from fakes.file_server import FileServer
from fakes.refuses import refuses
from tasks.corpus import beginning, overview
from tasks.corpus.records import formats
from tasks.corpus.records.counts import count_codes
from tasks.corpus.records.documents import Column
from tasks.corpus.source import CorpusSource
from tasks.corpus.storage.retry import RetryPolicy

TEXTS = ["Ana are mere.", 'Șase; "șapte", opt|nouă', "日本語の文章", "😀 сто", "ultimul"]
QUICK = RetryPolicy(limit_s=5, first_s=0.01, longest_s=0.02)


def in_csv(delimiter, bom=""):
    def write(texts):
        out = io.StringIO(newline="")
        rows = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL)
        rows.writerows([["id", "text"], *([i, text] for i, text in enumerate(texts))])
        return bom + out.getvalue()

    return write


def in_json(indent=None, end="\n", begin="", ascii_only=False):
    def write(texts):
        rows = [{"id": i, "text": text} for i, text in enumerate(texts)]
        made = (json.dumps(row, indent=indent, ensure_ascii=ascii_only) for row in rows)
        return "".join(begin + row + end for row in made)

    return write


def array(indent=None):
    return lambda texts: json.dumps(
        [{"text": text} for text in texts], indent=indent, ensure_ascii=False
    )


FORMATS = {  # (suffix, how it is written)
    "lines of JSON": ("jsonl", in_json()),
    "in ASCII": ("jsonl", in_json(ascii_only=True)),
    "without a last end": ("jsonl", lambda texts: in_json()(texts).rstrip("\n")),
    "with CR": ("jsonl", in_json(end="\r\n")),
    "empty lines between": ("jsonl", in_json(end="\n\n \n")),
    "several on a line": ("jsonl", in_json(end=" ")),
    "several without a space": ("jsonl", in_json(end="")),
    "with commas": ("jsonl", in_json(end=",\n")),
    "indented": ("jsonl", in_json(indent=2)),
    "with RS": ("jsonl", in_json(begin="\x1e")),
    "indented with RS": ("json", in_json(begin="\x1e", indent=1)),
    "an array named lines": ("jsonl", array()),
    "an indented array named lines": ("jsonl", array(2)),
    "lines named JSON": ("json", in_json()),
    "an array": ("json", array()),
    "an indented array": ("json", array(4)),
    "an array in an array": ("json", lambda texts: f"[ {array()(texts)} ]"),
    "two arrays": ("json", lambda texts: array(1)(texts[:2]) + array(1)(texts[2:])),
    "CSV": ("csv", in_csv(",")),
    "CSV by semicolons": ("csv", in_csv(";")),
    "CSV by tabs": ("csv", in_csv("\t")),
    "CSV by bars": ("csv", in_csv("|")),
    "TSV": ("tsv", in_csv("\t")),
    "TSV by commas": ("tsv", in_csv(",")),
    "text": ("txt", "\n".join),
    "text with CR": ("text", "\r\n".join),
}
COMPRESSED = {
    "": lambda data: data,
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": zstandard.compress,
}


def tar(*named, end=True):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in named:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue() if end else out.getvalue()[: archive.offset - 1024]


def parquet(table):
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def zipped(name):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, "un text")
    return out.getvalue()


@dataclasses.dataclass
class Case:
    """`files` by name, of which `found` must come out; or text that a refusal must have."""

    name: str
    files: dict
    found: list | str
    skipped: dict = dataclasses.field(default_factory=dict)
    settings: dict = dataclasses.field(default_factory=dict)


def layouts():
    """Yield every format in every encoding, alone and compressed."""
    for name, (suffix, write) in FORMATS.items():
        text = write(TEXTS)
        for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
            yield Case(f"{name}, {encoding}", {f"train.{suffix}": text.encode(encoding)}, TEXTS)
    for name in ("lines of JSON", "indented", "CSV by semicolons", "text"):
        suffix, write = FORMATS[name]
        for how, compress in COMPRESSED.items():
            end = f"{suffix}.{how}".rstrip(".")
            marked = b"\xfe\xff" + write(TEXTS).encode("utf-16-be")
            yield Case(f"{name}, UTF-16BE, {how}", {f"train.{end}": compress(marked)}, TEXTS)
            for encoding in ("utf-16-le", "utf-16-be", "utf-32-le"):
                data = compress(write(TEXTS).encode(encoding))
                said = f"looks like {encoding.upper()[:6]}{encoding.upper()[7:]} without"
                yield Case(f"{name}, bare {encoding}, {how}", {f"train.{end}": data}, said)
            if how:
                whole = compress(write(TEXTS * 9).encode())
                for cut in (1, len(whole) // 2, len(whole) - 1):
                    files = {f"train.{end}": whole[:cut]}
                    yield Case(f"{name}, {how} cut at {cut}", files, "damaged or cut short")
                files = {f"train.{end}": whole + b"no such data"}
                yield Case(f"{name}, {how} and more", files, "damaged or cut short")
                files = {f"train.{suffix}": whole}
                yield Case(f"{name}, {how} unnamed", files, f"end its name in .{how}")


def archives():
    """Yield tar archives, alone and compressed, complete and damaged."""
    text = lambda texts: "\n".join(texts).encode()
    shards = [("ro/", b""), ("ro/0.txt", text(TEXTS[:2])), ("ro/1.txt", text(TEXTS[2:]))]
    beside = [("README.md", b"?"), ("x.sha256.txt", b"?"), ("._0.csv", b"?"), *shards]
    leipzig = [("a-words.txt", b"1\tw"), ("a-sentences.txt", text(TEXTS))]
    inner = [(f"{i}.txt.xz", lzma.compress(text([each]))) for i, each in enumerate(TEXTS)]
    utf16 = [("0.csv", in_csv(";")(TEXTS).encode("utf-16"))]
    for end, compress in COMPRESSED.items():
        name = f"train.tar.{end}".rstrip(".")
        for what, members in (("shards", shards), ("more", beside), ("xz", inner), ("16", utf16)):
            yield Case(f"{name} of {what}", {name: compress(tar(*members))}, TEXTS)
        yield Case(
            f"{name} without an end", {name: compress(tar(*shards, end=False))}, "has no end"
        )
        cut = compress(tar(*shards)[:1500])
        yield Case(f"{name} cut in a file", {name: cut}, "damaged or cut short")
        two = compress(tar(*shards) + tar(*shards))
        yield Case(f"{name} twice", {name: two}, "more data follow")
        yield Case(f"{name} of two kinds", {name: compress(tar(*leipzig))}, "by a pattern")
        none = compress(tar(("a.bin", b"?")))
        yield Case(f"{name} of no text", {name: none}, "no file of a known format")
    data = {"train.tgz": gzip.compress(tar(*leipzig))}
    settings = {"files": {"train": "{0}/train.tgz#*-sentences.txt"}}
    yield Case("a member by its name", data, TEXTS, {}, settings)
    inside = {"train.tar": tar(("a.parquet", b"?"))}
    yield Case("parquet in an archive", inside, "unpack it")


ROWS = [{"text": text} for text in TEXTS]
LISTS = [[text, text] for text in TEXTS]
TWICE = [f"{text} {text}" for text in TEXTS]
NESTED = {  # by how the text lies in a row: (rows, column, documents)
    "a path": ([{"meta": row} for row in ROWS], Column("meta.text"), TEXTS),
    "a deep path": ([{"a": {"b": row}} for row in ROWS], Column("a.b.text"), TEXTS),
    "a name with a dot": ([{"meta.text": text} for text in TEXTS], Column("meta.text"), TEXTS),
    "a template": ([{"a": row} for row in ROWS], Column("{a.text} {a.text}"), TWICE),
    "a list": ([{"text": each} for each in LISTS], Column("text", joined=" "), TWICE),
    "a list not joined": ([{"text": each} for each in LISTS], Column("text"), "joined="),
    "a list in a path": ([{"a": {"b": x}} for x in LISTS], Column("a.b", joined=" "), TWICE),
    "objects": ([{"a": [r, r]} for r in ROWS], Column("a.text", joined=" "), TWICE),
    "a filter": (
        [{"meta": {"lang": "ro", **row}} for row in ROWS],
        Column("meta.text", where={"meta.lang": "ro"}),
        TEXTS,
    ),
    "no such path": (
        [{"meta": row} for row in ROWS],
        Column("meta.body"),
        "only meta, meta.text",
    ),
}


def as_bytes(value):
    """Return a value with bytes in place of texts, as Spark stores them."""
    if isinstance(value, dict):
        return {name: as_bytes(inner) for name, inner in value.items()}
    return [as_bytes(x) for x in value] if isinstance(value, list) else value.encode()


def columns():
    """Yield texts in rows of every shape, in JSON and parquet."""
    for name, (rows, column, found) in NESTED.items():
        settings = {"column": column}
        lines = "\n".join(json.dumps(row) for row in rows).encode()
        yield Case(f"JSON, {name}", {"train.jsonl": lines}, found, {}, settings)
        for kind, typed in (("text", rows), ("BINARY", [as_bytes(row) for row in rows])):
            data = parquet(pa.Table.from_pylist(typed))
            yield Case(f"parquet of {kind}, {name}", {"train.parquet": data}, found, {}, settings)
    values = pa.array([b"a", b"\xff", None, b"c"], pa.large_binary())
    data = parquet(pa.table({"text": values}))
    skipped = {"skipped_not_UTF-8": 1, "skipped_null": 1}
    yield Case("BINARY that is no text", {"train.parquet": data}, ["a", "c"], skipped)


def contents():
    """Yield files that hold something else than their names say, or bad records."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:5f2\nsize 9\n"
    page = b"<!DOCTYPE html>\n<html><body>Sign in</body></html>"
    for end in ("jsonl", "json", "csv", "txt", "parquet", "jsonl.gz", "tar"):
        yield Case(f"a pointer, {end}", {f"train.{end}": pointer}, "git lfs pull")
    for end in ("jsonl", "csv", "parquet", "txt.gz"):
        yield Case(f"a page, {end}", {f"train.{end}": page}, "a web page")
    for what, data in {
        "a parquet file": parquet(pa.table({"text": TEXTS})),
        "a zip archive": b"PK\x03\x04" + bytes(99),
        "a tar archive": tar(("a.txt", b"a")),
        "an Arrow file": b"ARROW1" + bytes(99),
        "a document": b"%PDF-1.7\n",
    }.items():
        for end in ("jsonl", "txt"):
            yield Case(f"{what} named {end}", {f"train.{end}": data}, what)
    for data in (b"%PDF-1.7\n", zipped("[Content_Types].xml"), zipped("word/document.xml")):
        yield Case(f"a document {data[:9]} named txt", {"train.txt": data}, "take its text out")
    for end, command in {"pdf": "pdftotext", "docx": "pandoc", "epub": "pandoc"}.items():
        yield Case(f"a .{end} file alone", {f"train.{end}": b"?"}, command)
        yield Case(f"a .{end} file beside", {f"a.{end}": b"?" * 99, "train.txt": b"a"}, ["a"])
    for nuls in (1, 3):
        for place in (0, 1):
            text = "a" * place + "\0b" * nuls
            more = ["o linie"] * 20
            for end, head in (("csv", ["text"]), ("txt", [])):
                lines = "\n".join([*head, text, *more]).encode()
                yield Case(f"{nuls} NULs in {end}, {place}", {f"train.{end}": lines}, [text, *more])
    for end, command in {"zip": "unzip", "7z": "7z x", "arrow": "to_parquet", "rar": "7z"}.items():
        yield Case(f"a .{end} file", {f"train.{end}": b"?", "train.txt": b"a"}, command)
    quotes = "\n".join(map(str, ROWS)).encode()
    yield Case("Python's quotes", {"train.jsonl": quotes}, "json.dumps")
    yield Case("Python's list", {"train.json": str(ROWS).encode()}, "json.dumps")
    yield Case("text named JSON", {"train.jsonl": b"Ana\nare\n"}, "end its name in .txt")
    yield Case("NUL", {"train.txt": bytes(5000) + b"a\n"}, "write it again")
    yield Case("CR alone", {"train.txt": b"Ana\rare\rmere\r"}, "ends its lines by CR")
    table = parquet(pa.table({"text": TEXTS * 99}))
    for cut in (0.01, 0.5, 0.99):
        files = {"train.parquet": table[: int(cut * len(table))]}
        yield Case(f"parquet cut at {cut}", files, "damaged or cut short")
    bad = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    data = {"train.parquet": parquet(pa.table({"text": bad}))}
    yield Case("parquet that is not UTF-8", data, ["a", "c"], {"skipped_not_UTF-8": 1})
    items = b'[{"text": "a"}, 5, "b", {"text": "c"}, null]'
    yield Case("bad items of an array", {"train.json": items}, ["a", "c"], {"skipped_malformed": 3})
    yield Case("an array cut", {"train.json": array()(TEXTS)[:-1].encode()}, "damaged or cut")
    yield Case("an array half", {"train.json": array()(TEXTS)[:60].encode()}, "damaged or cut")
    half = {"train.txt": "a\nb\n".encode("utf-16")[:-1]}
    yield Case("half a letter of UTF-16", half, "damaged or cut")
    lone = b"\xff\xfea\0\n\0\0\xd8\n\0b\0\n\0"
    yield Case("half a pair of UTF-16", {"train.txt": lone}, ["a", "b"], {"skipped_not_UTF-8": 1})
    mixed = b'{"text": "a"}\n{"text": "\xe7"}\n{"text": "b"} {"text": "c\n[{"text": "d"}, 5]\nno\n'
    skipped = {"skipped_malformed": 3, "skipped_not_UTF-8": 1}
    yield Case("bad lines of JSON", {"train.jsonl": mixed}, ["a", "b", "d"], skipped)
    rows = {"train.csv": b"text;n\na;1\nb\xe7;2\nc;3;4\nd;5\n"}
    skipped = {"skipped_malformed": 1, "skipped_not_UTF-8": 1}
    yield Case("bad rows of CSV", rows, ["a", "d"], skipped)
    yield Case("a CSV column alone", {"train.csv": b"text\na;b\nc;d\n"}, ["a;b", "c;d"])
    yield Case("an open quote", {"train.csv": b'id;text\n1;"a\n2;b\n'}, "has a quote")
    yield Case("an empty file beside", {"train-0.txt": b"", "train-1.txt": b"a"}, ["a"])


def folders():
    """Yield folders in which other files lie beside the data."""
    data = {f"train-{i}.jsonl": in_json()([text]).encode() for i, text in enumerate(TEXTS)}
    log = b"step 1, loss 9.1\n"
    for name in (
        "train-0.jsonl.sha256.txt",
        "train_log.txt",
        "train.log.1.txt",
        "train-sha256sums.txt",
        "train.md5",
        "trainer_state.json",
        "training_arguments.json",
        "train-README.txt",
        "train_stats.json",
        "train-0.jsonl~",
        "train.idx",
        "validation-0.jsonl",
    ):
        yield Case(f"{name} beside", {**data, name: log}, TEXTS)
    big = {**data, "train-9.jsonl": in_json()(["x" * 5000]).encode()}
    yield Case("few bytes of text beside", {**big, "train-9.txt": log}, [*TEXTS, "x" * 5000])
    yield Case("many bytes of text beside", {**data, "train-9.txt": log * 9}, "another format")
    yield Case("only a log", {"train_log.txt": log}, "has no file that is data")
    yield Case("only trainer_state", {"trainer_state.json": b"{}"}, "has no file that is data")
    yield Case("a part beside", {**data, "train-9.jsonl.part": log}, "not complete")
    twice = {**data, "train-0.jsonl.gz": gzip.compress(data["train-0.jsonl"])}
    yield Case("compressed too", twice, "compressed too")
    every = {"splits": {"train": ""}}
    yield Case("all of a folder", data, TEXTS, {}, every)


CASES = [*layouts(), *archives(), *columns(), *contents(), *folders()]


def read(source):
    """Return the documents of all files, in order, and what was skipped."""
    split = source.corpus_split("train")
    texts, codes = [], []
    for file in split.files:
        for part in range(split.retry(lambda: split.layout.count(file), file)):  # noqa: B023
            for batch in split.retry(lambda: list(split.batches(file, part)), file):  # noqa: B023
                found = split.screen(file, batch)
                texts += [document[0].decode() for document in found.usable]
                codes += found.codes.tolist()
    counts = count_codes(np.array(codes, np.int32))
    assert counts.pop("read", 0) == len(texts) + counts.total()  # nothing is lost in silence
    return texts, {name: n for name, n in counts.items() if n}


def made(folder, case):
    for name, data in case.files.items():
        (folder / name).write_bytes(data)
    settings = {"splits": ("train",), "retry_policy": QUICK} | case.settings
    if files := settings.get("files"):
        settings["files"] = {split: where.format(folder) for split, where in files.items()}
    return CorpusSource(None if files else str(folder), **settings)


def check(source, case):
    if isinstance(case.found, list):
        assert read(source) == (case.found, case.skipped)
        assert source.peek("train", 1) == case.found[:1]
        return
    with pytest.raises(UserError) as refused:
        source.peek("train", 1 + len(read(source)[0]))
    assert case.found in str(refused.value)
    assert "train" in str(refused.value)
    assert "\n" not in str(refused.value)


SERVERS = {  # by what they do, arguments of a FileServer
    "with ranges": {},
    "without ranges": {"ranges": False},
    "in chunks": {"ranges": False, "ends": "chunks"},
    "with nothing to tell a version": {"version": None},
}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("name", ["lines of JSON", "indented", "CSV by bars", "text"])
def test_a_server_sends_what_a_disk_holds(tmp_path, server, name):
    suffix, write = FORMATS[name]
    for how, compress in COMPRESSED.items():
        for encoding in ("utf-8", "utf-16"):
            path = f"{encoding}.{suffix}.{how}".rstrip(".")
            (tmp_path / path).write_bytes(compress(write(TEXTS).encode(encoding)))
    with FileServer(tmp_path, **SERVERS[server]) as served:
        for path in tmp_path.iterdir():
            source = CorpusSource(files={"train": f"{served.url}/{path.name}"}, retry_policy=QUICK)
            served.faults = ["cut", 503, 429]
            assert read(source) == (TEXTS, {}), path.name


ENCODED = {  # what a server sends of a file, by the header Content-Encoding
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: b"\x0b" + data,
    "zstd": zstandard.compress,
    "gzip, br": lambda data: b"\x0b" + gzip.compress(data),
}


@pytest.mark.parametrize("encoding", ENCODED)
@pytest.mark.parametrize("server", ["with ranges", "in chunks"])
def test_a_body_that_a_server_has_encoded_is_named_by_its_header(tmp_path, encoding, server):
    data = "\n".join(TEXTS).encode()
    (tmp_path / "a.txt").write_bytes(ENCODED[encoding](data))
    (tmp_path / "a.list").write_bytes(ENCODED[encoding](b"a.txt\n"))
    with FileServer(tmp_path, encoding=encoding, **SERVERS[server]) as served:
        for place in (f"{served.url}/a.txt", f"@{served.url}/a.list"):
            with refuses(place.lstrip("@")) as refusal:
                CorpusSource(files={"train": place}, retry_policy=QUICK).peek("train", 1)
            assert f"Content-Encoding: {encoding.lower()}" in refusal.value.why


@pytest.mark.parametrize(
    ("name", "encoding"),
    [("a.txt.gz", "gzip"), ("a.txt.gz", "x-gzip"), ("a.txt.zst", "zstd"), ("a.txt", "identity")]
    + [("a.txt", odd) for odd in ("UTF-8", "aws-chunked", "none", "")],
)
def test_a_header_that_says_what_the_name_does_changes_nothing(tmp_path, name, encoding):
    suffix = name.removeprefix("a.txt").removeprefix(".")
    (tmp_path / name).write_bytes(COMPRESSED[suffix]("\n".join(TEXTS).encode()))
    with FileServer(tmp_path, encoding=encoding) as served:
        source = CorpusSource(files={"train": f"{served.url}/{name}"}, retry_policy=QUICK)
        assert read(source) == (TEXTS, {})


def bounded(folder, longest):
    """Return a source of a folder in which lines are at most `longest` bytes."""
    layout = CorpusSource(str(folder)).layout
    small = dataclasses.replace(layout, longest=longest, part_bytes=longest // 4)
    return type("Bounded", (CorpusSource,), {"layout": small})(str(folder))


def most_bytes(fn):
    """Return the most bytes that a call has held."""
    tracemalloc.start()
    try:
        fn()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


LONG = {
    "jsonl": b'{"text": "a"}\n{"text": "%s"}\n{"text": "b"}\n',
    "json": b'[{"text": "a"}, {"text": "%s"}, {"text": "b"}]',
    "txt": b"a\n%s\nb\n",
    "csv": b"text\na\n%s\nb\n",
}


@pytest.mark.parametrize("how", COMPRESSED)
@pytest.mark.parametrize("suffix", LONG)
def test_a_line_beyond_the_longest_text_is_counted_or_named_and_never_held(tmp_path, suffix, how):
    many, longest = 12 << 20, 1 << 18  # bytes
    path = tmp_path / f"train.{suffix}.{how}".rstrip(".")
    path.write_bytes(COMPRESSED[how](LONG[suffix] % (b"x" * many)))
    source = bounded(tmp_path, longest)

    def check():
        if suffix in ("json", "csv"):  # whose next record cannot be found
            with pytest.raises(UserError, match="train"):
                read(source)
        else:
            assert read(source) == (["a", "b"], {"skipped_too_long": 1})

    most = most_bytes(check)
    assert most < many or how in ("xz", "bz2", "zst")  # 2 KB of which may be all of it


def test_a_bomb_is_read_in_bounded_memory(tmp_path):
    """24 KB of Zstandard that are one line of 768 MB."""
    pack = zstandard.ZstdCompressor().compressobj()
    made = b"".join(pack.compress(b"x" * (8 << 20)) for _ in range(96)) + pack.flush()
    (tmp_path / "train.txt.zst").write_bytes(zstandard.compress(b"a\n") + made)
    assert len(made) < 30_000

    def check():
        assert read(bounded(tmp_path, 1 << 20)) == (["a"], {"skipped_too_long": 1})

    assert most_bytes(check) < 200 << 20


@pytest.mark.parametrize("end", ["txt", "csv", "jsonl.gz", "parquet", "tar"])
def test_a_file_that_is_deleted_while_it_is_read_is_named_or_skipped(tmp_path, end):
    """As in an epoch, when only the first of two files has been read."""
    for i in range(2):
        write = {"csv": in_csv(","), "jsonl": in_json()}.get(end.split(".")[0], "\n".join)
        data = COMPRESSED[end.partition(".")[2]](write(TEXTS).encode())
        if end == "parquet":
            data = parquet(pa.table({"text": TEXTS}))
        (tmp_path / f"{i}.{end}").write_bytes(tar(("a.txt", data)) if end == "tar" else data)
    source = CorpusSource(str(tmp_path))
    split = source.corpus_split("train")
    (tmp_path / f"1.{end}").unlink()
    with refuses(tmp_path / f"1.{end}"):
        list(split.documents())
    split = dataclasses.replace(split, skips_bad_files=True)
    assert [text.decode() for batch in split.documents() for (text,) in batch] == TEXTS


EXPLOSIVE = {  # small files of many records, of which the first may be text
    "nulls.jsonl.gz": lambda: gzip.compress(b'{"text": null}\n' * 50_000),
    "nulls.parquet": lambda: parquet(pa.table({"text": pa.array([None] * 50_000, pa.string())})),
    "lines.txt.xz": lambda: lzma.compress(b"\n" * 50_000),
    "some.txt.xz": lambda: lzma.compress(b"un text\n" + b"\n" * 50_000),
}


@pytest.mark.parametrize("name", EXPLOSIVE)
def test_a_small_file_of_many_records_is_left_after_a_number_of_them(tmp_path, monkeypatch, name):
    (tmp_path / name).write_bytes(EXPLOSIVE[name]())
    assert (tmp_path / name).stat().st_size < 2_000
    monkeypatch.setattr(beginning, "MOST_UNUSABLE", 2_000)
    monkeypatch.setattr(overview, "COUNTED_RECORDS", 2_000)
    source = CorpusSource(str(tmp_path))
    assert not overview.is_small(source, "train")
    if name.startswith("some"):
        assert source.peek("train", 1) == ["un text"]
        return
    with refuses(tmp_path / name) as refusal:
        source.peek("train", 1)
    assert "of 2,0" in refusal.value.why or "of 2,5" in refusal.value.why


@pytest.mark.parametrize("end", ["parquet", "jsonl.zst", "csv.xz", "txt.zst"])
@pytest.mark.parametrize("is_too_large", [False, True])
def test_records_that_are_too_large_together_are_refused(tmp_path, monkeypatch, end, is_too_large):
    texts = ["x" * 10_000] * 1000
    if end == "parquet":
        data = parquet(pa.table({"text": texts}))
    else:
        write = {"jsonl": in_json(), "csv": in_csv(","), "txt": "\n".join}[end.split(".")[0]]
        data = COMPRESSED[end.split(".")[1]](write(texts).encode())
    (tmp_path / f"train.{end}").write_bytes(data)
    assert len(data) < 20_000
    monkeypatch.setattr(formats, "MOST_BYTES", 512 * 10_100 - 200_000 * is_too_large)
    source = CorpusSource(str(tmp_path))
    if not is_too_large:
        assert read(source) == (texts, {})
        return
    with refuses(tmp_path / f"train.{end}"):
        read(source)


def test_a_footer_tells_texts_that_are_too_large(tmp_path, monkeypatch):
    path = tmp_path / "train.parquet"
    pq.write_table(pa.table({"text": ["x" * 100_000]}), path, compression="zstd")
    monkeypatch.setattr(formats, "MOST_BYTES", 50_000)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", None)  # nothing is decoded
    with refuses(path):
        CorpusSource(str(tmp_path)).peek("train")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_file_is_read_or_named(tmp_path, case):
    check(made(tmp_path, case), case)
