"""What was understood of a corpus is counted where that is cheap, and asked about where unsure."""

import gzip

import pytest

from fakes.corpora import LINES, write
from fakes.refuses import refuses
from tasks.corpus import overview as module
from tasks.corpus.overview import overview
from tasks.corpus.source import CorpusSource

WRAPPED = "\n\n".join(["    o linie\nși alta,\nscurtă"] * 8)

DIVIDED = "".join(f"glumă {i}\npe rânduri {i}\n%\n" for i in range(9))


@pytest.mark.parametrize("limit", ["COUNTED_BYTES", "COUNTED_FILES"])
def test_documents_and_those_held_out_are_counted(tmp_path, monkeypatch, limit):
    source = CorpusSource(str(write(tmp_path, "jsonl", LINES)), held_out={"validation": 0.01})
    found = overview(source, "train")
    held = len([*source.get_dataset("validation", shuffle=False).as_numpy_iterator()])
    assert (len(found.files), found.documents, found.held_out) == (1, 600, {"validation": held})
    for split, said in (("train", f"{held} held out"), ("validation", f"{held} of them")):
        assert said in str(overview(source, split))
    monkeypatch.setattr(module, limit, 0)
    assert overview(source, "train").documents is None
    assert "about 12,000 documents" in overview(source, "train").details(12_345.6)
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
        (DIVIDED, 3, None, 81, True),
        (DIVIDED, 3, "%", 27, False),
        (DIVIDED, 3, "lines", 81, False),
        ("o linie\n" * 9 + "…\n" * 99, 3, None, 324, False),
        ("o linie\n---\nalta\n***\n" * 9, 3, None, 108, False),
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


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("test_of_time.txt", "test"),
        ("uk_dev.txt", "validation"),
        ("dev/0.txt", "validation"),
        ("a.txt", None),
    ],
)
def test_files_that_are_taken_for_another_split_are_named(tmp_path, name, split):
    for each in ("z.txt", name):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text("o linie\n")
    found = overview(CorpusSource(str(tmp_path)), "train")
    assert list(found.others) == ([split] if split else [])
    assert (name.rpartition("/")[2] in str(found)) == bool(split)


OTHER_BYTES = {  # by suffix, how a line is written
    "txt": "{}\n",
    "csv": "{}\n",
    "jsonl": '{{"text": "{}"}}\n',
    "txt.gz": "{}\n",
}


@pytest.mark.parametrize("suffix", OTHER_BYTES)
@pytest.mark.parametrize("share", [0.05, 0.4, 0.6, 1.0])
def test_lines_in_another_encoding_are_named_with_a_cure_or_refused(tmp_path, suffix, share):
    texts = ["Рядок про місто і воду" if i < 100 * share else f"row {i}" for i in range(100)]
    lines = ["text\n"] * (suffix == "csv") + [OTHER_BYTES[suffix].format(text) for text in texts]
    data = "".join(lines).encode("cp1251")
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    source = CorpusSource(str(tmp_path))
    if share > 0.5:
        for look in (source.peek, lambda split: overview(source, split)):
            with refuses(path) as refusal:
                look("train")
            assert "-f WINDOWS-1251 -t UTF-8" in refusal.value.to_set
        return
    assert source.peek("train")
    found = overview(source, "train")
    assert f"{100 * share:.0f} of 10" in found.not_utf8.why
    assert "-f WINDOWS-1251 -t UTF-8" in str(found)


def test_most_files_in_another_encoding_are_refused_behind_one_that_is_not(tmp_path):
    for i in range(9):
        (tmp_path / f"{i}.txt").write_bytes(("місто\n" * 9).encode("cp1251" if i else "utf-8"))
    source = CorpusSource(str(tmp_path))
    assert source.peek("train")
    with refuses(tmp_path / "1.txt"):
        overview(source, "train")


SEPARATORS = ["%", "%%", "---", "* * *", "=====", "~~~", "#", "<|endoftext|>", "<doc>"]


@pytest.mark.parametrize("line", SEPARATORS)
def test_a_line_between_documents_is_noticed_and_divides_them(tmp_path, line):
    texts = [f"titlul {i}\n\no strofă {i}\n- {i} -\nalta {i}" for i in range(40)]
    for i in range(2):
        between = f"\n {line}\r\n"
        (tmp_path / f"{i}.txt").write_text(between.join([*texts[i * 20 : i * 20 + 20], ""]))
    found = overview(CorpusSource(str(tmp_path)), "train")
    assert found.documents_are == (line,)
    assert repr(line) in found.looks_like
    assert repr(line) in found.to_set
    source = CorpusSource(str(tmp_path), documents=line, held_out={})
    found = overview(source, "train")
    assert (found.documents, found.looks_like) == (40, "")
    assert [text.decode() for batch in source.texts("train") for (text,) in batch] == texts


@pytest.mark.parametrize("documents", ["", "paragraph", "line", " % "])
def test_a_slip_is_no_line_between_documents(documents):
    with refuses("documents"):
        CorpusSource("/data", documents=documents)
