"""What was understood of a corpus is counted where that is cheap, and asked about where unsure."""

import pytest

from fakes.corpora import LINES, write
from tasks.corpus import overview as module
from tasks.corpus.overview import overview
from tasks.corpus.source import CorpusSource

WRAPPED = "\n\n".join(["    o linie\nși alta,\nscurtă"] * 8)


@pytest.mark.parametrize("limit", ["COUNTED_BYTES", "COUNTED_FILES"])
def test_documents_and_those_held_out_are_counted(tmp_path, monkeypatch, limit):
    source = CorpusSource(str(write(tmp_path, "jsonl", LINES)))
    found = overview(source, "train")
    held = len([*source.get_dataset("validation", shuffle=False).as_numpy_iterator()])
    assert (found.files, found.documents, found.held_out) == (1, 600, {"validation": held})
    for split, said in (("train", f"{held} held out"), ("validation", f"{held} of them")):
        assert said in str(overview(source, split))
    monkeypatch.setattr(module, limit, 0)
    assert overview(source, "train").documents is None
    assert "about 12,000 documents" in overview(source, "train").of_documents(12_345.6)
    assert "1% held out" in str(overview(source, "train"))


@pytest.mark.parametrize(
    ("text", "files", "documents", "count", "is_asked"),
    [
        ("o linie\n" * 9, 3, None, 27, False),
        ("o linie\n" * 9, 30, None, 270, True),
        ("o linie lungă " * 30 + "\n", 30, None, 30, False),
        (WRAPPED, 3, None, 72, True),
        (WRAPPED, 3, "lines", 72, False),
        (WRAPPED, 3, "paragraphs", 24, False),
        (WRAPPED, 3, "files", 3, False),
        ("o linie\n\n" * 9, 3, None, 27, False),
    ],
)
def test_lines_that_may_be_no_documents_are_asked_about(
    tmp_path, text, files, documents, count, is_asked
):
    for i in range(files):
        (tmp_path / f"{i}.txt").write_text(text)
    found = overview(CorpusSource(str(tmp_path), documents=documents), "train")
    assert found.documents == count
    assert bool(found.looks_like) == is_asked
    assert ("documents of the source" in found.asked) == is_asked
