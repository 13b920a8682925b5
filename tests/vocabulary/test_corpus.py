"""Text of every kind of file arrives as short normalized lines."""

import gzip
import json

import pytest

from fakes.paths import ROOT
from vocabulary import corpus

MINI = str(ROOT / "data" / "ro_mini" / "train-*.jsonl")


def test_long_lines_are_cut_at_spaces():
    text = "cuvânt " * 2000
    parts = list(corpus.split_line(text))
    assert all(len(part.encode()) <= corpus.MAX_LINE_BYTES for part in parts)
    assert " ".join(parts).split() == text.split()
    assert list(corpus.split_line("a" * 5000 + " b")) == ["b"]
    assert list(corpus.split_line("  ")) == []


def test_bad_documents_are_counted_and_cedillas_become_commas():
    counts = corpus.TextCounts()
    documents = [None, "", " \n", 7, "Ştiinţă\n\nşi ţară"]
    assert list(corpus.read_lines(documents, counts)) == ["Știință", "și țară"]
    kept = corpus.read_lines(documents, corpus.TextCounts(), cedilla=False)
    assert list(kept) == ["Ştiinţă", "şi ţară"]
    assert (counts.documents, counts.skipped, counts.lines) == (1, 4, 2)


def test_every_kind_of_file(tmp_path):
    (tmp_path / "a.txt").write_text("unu\ndoi\n")
    (tmp_path / "b.csv").write_text("id,text\n1,unu\n2,doi\n")
    (tmp_path / "c.tsv").write_text("id\ttext\n1\tunu\n2\tdoi\n")
    rows = "".join(json.dumps({"text": text}) + "\n" for text in ("unu", "doi"))
    (tmp_path / "d.jsonl").write_text(rows)
    (tmp_path / "e.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    for path in sorted(tmp_path.iterdir()):
        assert list(corpus.read_documents(str(path))) == ["unu", "doi"], path


@pytest.mark.parametrize("good", [0, 3000])
def test_broken_files_are_one_sentence(tmp_path, good):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "un rând"}\n' * good + "{bad\n")
    with pytest.raises(ValueError, match=r"the corpus .*a.jsonl cannot be read: [^\n]*$"):
        list(corpus.read_documents(str(path)))


def test_max_documents():
    assert len(list(corpus.read_documents(MINI, max_documents=3))) == 3
