"""Files are found by patterns and read by ranges or streams, locally and over HTTP."""

import gzip
import os
import shutil

import pytest
import zstandard

from fakes.file_server import FileServer
from tasks.corpus import files, http_files
from tasks.corpus.files import CorpusFile


@pytest.mark.parametrize(
    ("url", "kind", "compression"),
    [
        ("a/b.jsonl", "jsonl", ""),
        ("https://x.org/a.NDJSON.zst?download=1", "jsonl", "zst"),
        ("gs://b/a.csv.gz", "csv", "gz"),
        ("a.txt", "text", ""),
        ("/data/what?/a.txt", "text", ""),
    ],
)
def test_suffixes_name_the_format(url, kind, compression):
    assert files.classify(url) == CorpusFile(url, kind, compression)


def test_other_suffixes_are_no_corpus_unless_the_kind_is_given():
    assert files.classify("README.md") is None
    assert [files.classify(name) for name in ("owner/text", "jsonl", "text.gz")] == [None] * 3
    assert files.classify("train.ro.gz", "text") == CorpusFile("train.ro.gz", "text", "gz")


def test_patterns_give_each_file_once_in_order(tmp_path):
    for name in ("b.txt", "a.txt", "c.txt"):
        (tmp_path / name).write_text("x\n")
    found = files.match_files([f"{tmp_path}/[ab].txt", f"{tmp_path}/b.txt"])
    assert [file.url for file in found] == [f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"]
    with pytest.raises(ValueError, match=r"no file matches '.*/\*.csv': write one$"):
        files.match_files([f"{tmp_path}/*.csv"], advice=": write one")
    for pattern in ("absent/*.csv", "absent/a.csv"):
        with pytest.raises(ValueError, match=f", since there is no folder {tmp_path}/absent$"):
            files.match_files([f"{tmp_path}/{pattern}"], advice=": write one")


def test_a_path_may_begin_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.txt").write_text("x\n")
    assert [file.url for file in files.match_files(["~/*.txt"])] == [f"{tmp_path}/a.txt"]


def test_parallel_files_are_joined_and_split(tmp_path):
    for name, n in (("a.ro", 2), ("a.en", 2), ("b.en", 3)):
        (tmp_path / name).write_text("x\n" * n)
    a, b, c = (CorpusFile(str(tmp_path / name), "text") for name in ("a.ro", "a.en", "b.en"))
    joint = files.join_parallel(a, b)
    assert (joint.kind, files.size(joint)) == (files.PARALLEL, 8)
    assert files.split_parallel(joint) == [a, b]
    local = files.join_parallel(*[files.match_files([side.url], "text")[0] for side in (a, b)])
    assert files.of_this_host(local) == local
    with pytest.raises(ValueError, match=r"same number .*a.ro has 2 and .*b.en has 3"):
        files.join_parallel(a, c)


@pytest.fixture(autouse=True)
def nothing_known():
    http_files.probe.cache_clear()


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


@pytest.mark.parametrize("pattern", ["*.txt", "[ab].txt", "**/a.txt?x=1"])
def test_a_pattern_over_http_is_refused_with_what_to_write(pattern):
    with pytest.raises(ValueError, match=r"is a pattern, and web servers do not list .*'@https://"):
        files.match_files([f"https://example.org/{pattern}"])
    (found,) = files.match_files(["https://example.org/a.txt?key=*"])
    assert found.url.endswith("key=*")


def test_a_list_names_files_by_address_path_or_pattern(tmp_path, served):
    (tmp_path / "corpus").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "corpus" / name).write_text("x\n")
    lines = ["# two files here", "", "corpus/[ab].txt", f"{served.url}/a.txt.gz", "/nowhere/*.txt"]
    (tmp_path / "all.map").write_text("\n".join(lines[:-1]))
    found = [file.url for file in files.match_files([f"@{tmp_path}/all.map"])]
    folder = f"{tmp_path}/corpus"
    assert found == [f"{folder}/a.txt", f"{folder}/b.txt", f"{served.url}/a.txt.gz"]
    (tmp_path / "all.map").write_text("\n".join(lines))
    with pytest.raises(
        ValueError, match=r"no file matches '/nowhere/\*.txt', which .*all.map names"
    ):
        files.match_files([f"@{tmp_path}/all.map"])
    (tmp_path / "all.map").write_text("# nothing\n")
    with pytest.raises(ValueError, match=r"all.map names no file: write one address a line"):
        files.match_files([f"@{tmp_path}/all.map"])
    with pytest.raises(ValueError, match=r"no known format.*of a list of addresses write '@"):
        files.match_files([f"{tmp_path}/all.map"])


def test_a_list_is_read_in_part_by_the_names_of_its_files(tmp_path):
    names = ["10_1.txt", "9_1.txt", "9_2.txt", "8_1.txt"]
    for name in names:
        (tmp_path / name).write_text("x\n")
    (tmp_path / "all.map").write_text("\n".join(names))
    found = files.match_files([f"@{tmp_path}/all.map#10_*|9_*"])
    assert [file.url.rsplit("/", 1)[1] for file in found] == names[:3]
    with pytest.raises(ValueError, match=r"all.map names no file that matches '7_\*'"):
        files.match_files([f"@{tmp_path}/all.map#7_*"])


@pytest.mark.parametrize("name", ["ro.map", "ro.txt", "ro.txt.gz"])
def test_a_list_may_be_on_a_server_and_name_files_beside_it(tmp_path, name):
    (tmp_path / "ro").mkdir()
    lines = b"1.txt\n/ro/2.txt\nhttps://example.org/3.txt\n"
    (tmp_path / "ro" / name).write_bytes(gzip.compress(lines) if name.endswith("gz") else lines)
    with FileServer(tmp_path) as server:
        found = files.match_files([f"@{server.url}/ro/{name}"])
        near = f"{server.url}/ro"
        wanted = [f"{near}/1.txt", f"{near}/2.txt", "https://example.org/3.txt"]
        assert [file.url for file in found] == sorted(wanted)
        server.faults = ["cut"] * 9
        with pytest.raises(ConnectionError):
            files.match_files([f"@{server.url}/ro/{name}"])


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_where_a_server_marks_no_end_the_compressed_data_do(tmp_path, kind):
    data = {"gz": gzip.compress, "zst": zstandard.compress}[kind](b"x\n" * 9999)
    (tmp_path / f"a.txt.{kind}").write_bytes(data)
    with FileServer(tmp_path, ranges=False, ends="nothing") as server:
        file = files.classify(f"{server.url}/a.txt.{kind}")
        with files.open_stream(file) as stream:
            assert stream.read() == b"x\n" * 9999
        server.faults = ["cut"]
        lost = pytest.raises(ConnectionError, match="the connection ended early")
        with lost, files.open_stream(file) as stream:
            stream.read()
        with pytest.raises(ValueError, match="sent without its length"):
            files.open_raw(file)


def test_text_without_length_or_chunks_is_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"x\n" * 9999)
    with FileServer(tmp_path, ranges=False, ends="nothing") as server:
        file = files.classify(f"{server.url}/a.txt")
        refused = pytest.raises(
            ValueError, match=r"a.txt is sent without its length, so a lost conn"
        )
        with refused, files.open_stream(file):
            pass
    with FileServer(tmp_path, ranges=False, ends="chunks") as server:
        with files.open_stream(files.classify(f"{server.url}/a.txt")) as stream:
            assert stream.read() == b"x\n" * 9999


def test_a_local_file_that_changes_in_place_is_noticed(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"a" * 100)
    os.utime(path, ns=(1, 1))
    (file,) = files.match_files([str(path)])
    assert files.read_range(file, 0, 10) == b"a" * 10
    path.write_bytes(b"b" * 100)
    for read in (lambda: files.read_range(file, 0, 10), lambda: files.open_raw(file)):
        with pytest.raises(ValueError, match=r"a.txt changed after it was listed"):
            read()


@pytest.mark.parametrize("compression", ["", "gz"])
def test_a_local_file_that_changes_during_a_stream_is_noticed_at_its_end(tmp_path, compression):
    path = tmp_path / f"a.csv{'.gz' if compression else ''}"
    path.write_bytes(gzip.compress(b"x\n" * 99) if compression else b"x\n" * 99)
    (file,) = files.match_files([str(path)])
    with files.open_stream(file) as stream:
        assert len(stream.read()) == 198
    with pytest.raises(ValueError, match="changed after it was listed"), files.open_stream(file):
        os.utime(path, ns=(1, 1))


def test_contents_are_those_of_a_copy_but_not_of_another_file(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SAMPLED_BYTES", 1 << 16)
    contents = lambda folder: files.contents(files.match_files([f"{folder}/*.txt"]))
    for name, size in (("a.txt", 500), ("b.txt", 500_000)):
        (tmp_path / name).write_bytes(os.urandom(size))
    before = contents(tmp_path)
    copy = shutil.copytree(tmp_path, tmp_path / "copy", copy_function=shutil.copyfile)
    assert contents(copy) == before
    for name, place in (("a.txt", 250), ("b.txt", 0), ("b.txt", 499_999)):
        data = bytearray((tmp_path / name).read_bytes())
        data[place] ^= 1
        (tmp_path / name).write_bytes(data)
        assert contents(tmp_path) != before
        data[place] ^= 1
        (tmp_path / name).write_bytes(data)
        assert contents(tmp_path) == before


class Bucket:
    """A Google bucket, as gcsfs gives it, with one file and no old versions."""

    def __init__(self):
        self.data, self.generation = b"abc", "1"

    def glob(self, path, detail):
        return {"b/a.txt": {"size": 3, "generation": self.generation, "md5Hash": "same"}}

    def unstrip_protocol(self, path):
        return f"gs://{path}"

    def cat_file(self, path, start, end, generation):
        if generation != self.generation:
            raise FileNotFoundError(path)
        return self.data[start:end]


def test_a_bucket_gives_the_generation_that_was_listed(monkeypatch):
    bucket = Bucket()
    monkeypatch.setattr(files, "_filesystem", lambda url: (bucket, url.removeprefix("gs://")))
    (file,) = files.match_files(["gs://b/*.txt"])
    before = files.contents([file])
    assert files.read_range(file, 1, 3) == b"bc"
    bucket.generation = "2"
    with pytest.raises(ValueError, match="was replaced or deleted after it was listed"):
        files.read_range(file, 1, 3)
    (copied,) = files.match_files(["gs://b/*.txt"])
    assert files.contents([copied]) == before  # the same bytes under a new generation


def test_parallel_files_keep_what_is_known_of_both(served):
    remote = files.join_parallel(*[CorpusFile(f"{served.url}/a.txt", "text")] * 2)
    (complete,) = files.with_facts([remote])
    assert [bool(side.version) for side in files.split_parallel(complete)] == [True, True]


def test_what_another_host_listed_is_looked_at_here(tmp_path):
    (tmp_path / "a.txt").write_text("x\n")
    (listed,) = files.match_files([f"{tmp_path}/a.txt"])
    os.utime(tmp_path / "a.txt", ns=(5, 5))
    with pytest.raises(ValueError, match="changed after it was listed"):
        files.read_range(listed, 0, 2)
    assert files.read_range(files.of_this_host(listed), 0, 2) == b"x\n"
