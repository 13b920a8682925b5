"""Files are cut into parts without losing a record, and read into records of one shape."""

import csv
import gzip
import json

import pytest

from fakes.refuses import refuses
from tasks.corpus.records import formats
from tasks.corpus.records.formats import PartLayout
from tasks.corpus.records.values import MALFORMED
from tasks.corpus.source import CorpusSource
from tasks.corpus.storage.files import CorpusFile
from tasks.corpus.storage.names import recognize


def _read(source):
    dataset = source.get_dataset("train", shuffle=False)
    return [x["text"].decode() for x in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(
    ("url", "kind", "compression"),
    [
        ("a/b.jsonl", "jsonl", ""),
        ("https://x.org/a.NDJSON.zst?download=1", "jsonl", "zst"),
        ("gs://b/a.csv.gz", "csv", "gz"),
        ("/data/what?/a.txt", "text", ""),
    ],
)
def test_suffixes_name_the_format(url, kind, compression):
    assert recognize(url) == CorpusFile(url, kind, compression)


def test_other_suffixes_are_no_corpus_unless_the_kind_is_given():
    others = ["README.md", "owner/text", "jsonl", "text.gz"]
    assert [recognize(name) for name in others] == [None] * 4
    assert recognize("train.ro.gz", "text") == CorpusFile("train.ro.gz", "text", "gz")


def records(path, layout):
    file = recognize(str(path))
    batches = [b for part in range(layout.count(file)) for b in layout.batches(file, part)]
    return [record for batch in batches for record in batch]


@pytest.mark.parametrize("part_bytes", [1, 7, 64, 1000])
@pytest.mark.parametrize("end", ["\n", ""])
def test_byte_ranges_neither_lose_nor_double_a_line(tmp_path, monkeypatch, part_bytes, end):
    lines = ["", "a", "bb" * 40, "ș" * 9, "", "c", "d" * 300, "e"]
    (tmp_path / "train.txt").write_text("\n".join(lines) + end)
    monkeypatch.setattr(formats, "LOCAL_PART_BYTES", part_bytes)
    assert _read(CorpusSource(str(tmp_path), held_out={})) == [x for x in lines if x]


def test_a_paragraph_can_be_a_document(tmp_path):
    (tmp_path / "train.txt").write_text("Una.\nDouă.\n\n\nTrei.\n \nPatru.\nCinci.")
    source = CorpusSource(str(tmp_path), documents="paragraphs", held_out={})
    assert _read(source) == ["Una. Două.", "Trei.", "Patru. Cinci."]


DEEP = '{"text": "b", "meta": ' + "[" * 100_000 + "]" * 100_000 + "}"


@pytest.mark.parametrize("kind", ["jsonl", "json"])
def test_a_record_that_is_nested_too_deeply_is_malformed_and_alone(tmp_path, kind):
    texts = ['{"text": "a"}', DEEP, '{"text": "]}\\" c"}']
    text = "\n".join(texts) if kind == "jsonl" else f"[{', '.join(texts)}]"
    (tmp_path / f"a.{kind}").write_text(text)
    found = records(tmp_path / f"a.{kind}", PartLayout())
    assert found == [{"text": "a"}, MALFORMED, {"text": ']}" c'}]


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz"])
def test_the_beginning_of_a_file_has_the_columns_and_other_records_may_lack_them(tmp_path, kind):
    with_text, without = json.dumps({"text": "a" * 9}), json.dumps({"id": "b" * 9})
    opened = gzip.open if kind.endswith("gz") else open
    for name, lines in {"last": [with_text] * 600 + [without] * 600, "none": [without] * 9}.items():
        with opened(tmp_path / f"{name}.{kind}", "wt") as file:
            file.write("\n".join(lines))
    found = records(tmp_path / f"last.{kind}", PartLayout(part_bytes=1000))
    assert (len(found), sum("text" in record for record in found)) == (1200, 600)
    with refuses(f"{tmp_path}/none.{kind}"):
        records(tmp_path / f"none.{kind}", PartLayout(part_bytes=1000))


@pytest.mark.parametrize("part_bytes", [1, 100, None])
def test_what_the_beginning_is_does_not_depend_on_the_parts(tmp_path, monkeypatch, part_bytes):
    monkeypatch.setattr(formats, "LOCAL_PART_BYTES", 1000)
    lines = [json.dumps({"id": i}) for i in range(50)] + [json.dumps({"text": "a"})]
    (tmp_path / "soon.jsonl").write_text("\n".join(lines))
    (tmp_path / "late.jsonl").write_text("\n".join(lines[:50] * 3 + lines))
    layout = PartLayout(part_bytes=part_bytes)
    assert len(records(tmp_path / "soon.jsonl", layout)) == 51
    with refuses(f"{tmp_path}/late.jsonl"):
        records(tmp_path / "late.jsonl", layout)


@pytest.mark.parametrize(("kind", "comma"), [("csv", ","), ("csv", "\t"), ("tsv", ";")])
@pytest.mark.parametrize("wrong", ['"Una,', '"Una" două,', '"Una ""două"",', '"Una" "două",'])
def test_a_quote_that_does_not_end_is_refused_by_its_line(tmp_path, kind, comma, wrong):
    rows = ["text,label", '"a\nb",x', f"{wrong}x", *(f"row {i},y" for i in range(9)), '"c ""d""",z']
    for name, lines in (("last", rows[:-1]), ("before", rows)):
        path = tmp_path / f"{name}.{kind}"
        path.write_text("\n".join(lines).replace(",", comma) + "\n")
        with refuses(f"the row of {path} that begins at line 4"):
            records(path, PartLayout())


@pytest.mark.parametrize(("text", "line"), [('"a\nb\n', 1), ('a\n"b\nc\n', 2)])
def test_the_line_of_a_quote_is_right_in_the_header_and_behind_it(tmp_path, text, line):
    (tmp_path / "a.csv").write_text(text)
    with refuses(f"the row of {tmp_path}/a.csv that begins at line {line}"):
        records(tmp_path / "a.csv", PartLayout(("a",)))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quoted_fields_may_have_quotes_delimiters_and_lines(tmp_path, end):
    lines = ["text,label", '"a', 'b, ""c""",x', 'd "e" f,""', '"""g""","h"', ',"i"']
    (tmp_path / "a.csv").write_bytes(end.join(lines).encode())
    found = [tuple(row.values()) for row in records(tmp_path / "a.csv", PartLayout())]
    assert found == [(f'a{end}b, "c"', "x"), ('d "e" f', ""), ('"g"', "h"), ("", "i")]


COLUMNS = "1\ta a\tx\n2\tb\n\n \n3\tc\ty\n%\n4\t\tz\n"


@pytest.mark.parametrize(
    ("documents", "records_of_columns"),
    [
        ("lines", [("a a", "x"), ("b",), ("c", "y"), ("", "z")]),
        ("paragraphs", [("a a b", "x"), ("c ", "y z")]),
        ("files", [("a a\nb\nc\n", "x\ny\nz")]),
        ("%", [("a a\nb\nc", "x\ny"), ("", "z")]),
    ],
)
@pytest.mark.parametrize("end", ["txt", "txt.gz"])
def test_numbers_are_the_columns_of_plain_text_that_tabs_separate(
    tmp_path, documents, records_of_columns, end
):
    path = tmp_path / f"a.{end}"
    path.write_bytes(COLUMNS.encode() if end == "txt" else gzip.compress(COLUMNS.encode()))
    read = records(path, PartLayout(("2", "3"), documents))
    assert [tuple(row.values()) for row in read if row] == records_of_columns
    with refuses(path):
        records(path, PartLayout(("4",), documents))


PROSE = [f"rândul {i} cu apă" for i in range(50)]
ACCIDENT = ['"Bună ziua.', *PROSE, 'El a zis: da."', "Gata."]


def written(path, header, rows, comma):
    path.write_text("".join(comma.join(row) + "\n" for row in (header, *rows)))
    return records(path, PartLayout(("text",)))


@pytest.mark.parametrize("quoted", [*ACCIDENT[:1], '"Da." "Nu."', '"Da."', '"', '""', 'a"'])
def test_every_quote_of_a_tsv_is_text_and_every_line_a_row(tmp_path, quoted):
    rows = [(quoted, "a"), *((text, "b") for text in PROSE), ("c", 'd"'), ("e", "f")]
    read = written(tmp_path / "a.tsv", ("text", "label"), rows, "\t")
    assert [tuple(row.values()) for row in read] == rows


@pytest.mark.parametrize("number", [0, 1, 20])  # of rows before
@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("after", [0, 3, 2000])
def test_a_quoted_field_that_holds_rows_is_refused_by_its_line(tmp_path, number, columns, after):
    texts = [*PROSE[:number], *ACCIDENT, *PROSE[:1] * after]
    header, rows = (("text", "a", "b")[:columns], [(text, *"xy"[: columns - 1]) for text in texts])
    with refuses(f"the row of {tmp_path}/a.csv that begins at line {number + 2}"):
        written(tmp_path / "a.csv", header, rows, ",")


@pytest.mark.parametrize("columns", [1, 2])
def test_a_quoted_field_of_a_few_rows_is_named(tmp_path, caplog, columns):
    texts = [*PROSE, '"Bună ziua.', 'El a zis: da."', *PROSE]
    rows = [(text, *"x"[: columns - 1]) for text in texts]
    read = written(tmp_path / "a.csv", ("text", "a")[:columns], rows, ",")
    assert len(read) == 101
    assert f"{tmp_path}/a.csv that begins at line 52" in caplog.text


def test_a_quoted_field_may_end_in_another_column(tmp_path):
    rows = [("unu", '"doi'), *((text, "x") for text in PROSE), ('trei"', "patru"), ("a", "b")]
    with refuses(f"the row of {tmp_path}/a.csv that begins at line 2"):
        written(tmp_path / "a.csv", ("text", "label"), rows, ",")


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("other", ["una, două", 'zise "da"', "una,\ndouă", "una\n\ndouă"])
@pytest.mark.parametrize("place", [0, 1, 900])
def test_texts_of_many_lines_that_a_program_has_quoted_are_read(
    tmp_path, columns, quoting, other, place
):
    texts = ["\n".join(PROSE)] * 900
    texts.insert(place, other)
    rows = [(text, "x")[:columns] for text in texts]
    with open(tmp_path / "a.csv", "w", newline="") as file:
        csv.writer(file, quoting=quoting).writerows([("text", "label")[:columns], *rows])
    read = records(tmp_path / "a.csv", PartLayout(("text",)))
    assert [tuple(row.values()) for row in read] == rows


@pytest.mark.parametrize("text", ['zise "da"', '"da" zise', '"'])
def test_a_tsv_that_a_program_has_quoted_is_read_as_csv_or_named(tmp_path, caplog, text):
    for quoting, is_named in ((csv.QUOTE_ALL, False), (csv.QUOTE_MINIMAL, True)):
        path = tmp_path / f"{quoting}.tsv"
        with open(path, "w", newline="") as file:
            csv.writer(file, delimiter="\t", quoting=quoting).writerows([("text",), (text,)])
        caplog.clear()
        read = [row["text"] for row in records(path, PartLayout())]
        assert (read == [text]) == (not is_named)
        assert (str(path) in caplog.text) == is_named
        path.rename(path.with_suffix(".csv"))
        assert [row["text"] for row in records(path.with_suffix(".csv"), PartLayout())] == [text]
