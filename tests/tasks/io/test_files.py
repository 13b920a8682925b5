"""Files are found by patterns and read by ranges or streams, locally and over HTTP."""

import gzip

import pytest

from fakes.file_server import FileServer
from tasks.io import files
from tasks.io.files import CorpusFile


@pytest.mark.parametrize(
    ("url", "kind", "compression"),
    [
        ("a/b.jsonl", "jsonl", ""),
        ("https://x.org/a.NDJSON.zst?download=1", "jsonl", "zst"),
        ("gs://b/a.csv.gz", "csv", "gz"),
        ("a.txt", "text", ""),
    ],
)
def test_suffixes_name_the_format(url, kind, compression):
    assert files.classify(url) == CorpusFile(url, kind, compression)


def test_other_suffixes_are_no_corpus_unless_the_kind_is_given():
    assert files.classify("README.md") is None
    assert files.classify("train.ro.gz", "text") == CorpusFile("train.ro.gz", "text", "gz")


def test_patterns_give_each_file_once_in_order(tmp_path):
    for name in ("b.txt", "a.txt", "c.txt"):
        (tmp_path / name).write_text("x\n")
    found = files.match_files([f"{tmp_path}/[ab].txt", f"{tmp_path}/b.txt"])
    assert [file.url for file in found] == [f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"]
    with pytest.raises(ValueError, match="no file matches"):
        files.match_files([f"{tmp_path}/*.csv"])


def test_parallel_files_are_joined_and_split(tmp_path):
    for name, n in (("a.ro", 2), ("a.en", 2), ("b.en", 3)):
        (tmp_path / name).write_text("x\n" * n)
    a, b, c = (CorpusFile(str(tmp_path / name), "text") for name in ("a.ro", "a.en", "b.en"))
    joint = files.join_parallel(a, b)
    assert (joint.kind, files.size(joint)) == (files.PARALLEL, 8)
    assert files.split_parallel(joint) == [a, b]
    with pytest.raises(ValueError, match=r"same number .*a.ro has 2 and .*b.en has 3"):
        files.join_parallel(a, c)


@pytest.fixture
def served(tmp_path):
    (tmp_path / "a.txt").write_bytes(bytes(range(200)))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"un text"))
    with FileServer(tmp_path) as server:
        yield server


def test_a_range_is_all_that_is_fetched(served):
    file = files.classify(f"{served.url}/a.txt")
    assert files.size(file) == 200
    before = served.sent["/a.txt"]
    assert files.read_range(file, 10, 20) == bytes(range(10, 20))
    assert served.sent["/a.txt"] - before == 10


def test_random_access_reads_known_ranges_once_and_others_exactly(served):
    file = files.classify(f"{served.url}/a.txt")
    with files.open_random(file, [(100, 150)]) as opened:
        before = served.sent["/a.txt"]
        opened.seek(110)
        assert opened.read(20) == bytes(range(110, 130))
        assert served.sent["/a.txt"] == before
        opened.seek(-5, 2)
        assert opened.read() == bytes(range(195, 200))
        assert served.sent["/a.txt"] == before + 5


def test_a_stream_is_decompressed_and_an_early_end_is_an_error(served):
    file = files.classify(f"{served.url}/a.txt.gz")
    with files.open_stream(file) as stream:
        assert stream.read() == b"un text"
    served.faults = ["cut"]
    with pytest.raises(ConnectionError, match="bytes are missing"), files.open_raw(file) as raw:
        raw.read()
