"""Files are read by ranges or streams, locally and over HTTP, complete and in one version."""

import bz2
import gzip
import lzma
import os

import pytest
import zstandard

from fakes.file_server import FileServer, forget_files
from fakes.refuses import refuses
from tasks.corpus.listing import Listing, match_files
from tasks.corpus.storage import files
from tasks.corpus.storage.names import recognize


@pytest.fixture
def served(tmp_path):
    forget_files()
    (tmp_path / "a.txt").write_bytes(bytes(range(200)))
    with FileServer(tmp_path) as server:
        yield server


def test_random_access_reads_known_ranges_once_and_others_exactly(served):
    file = recognize(f"{served.url}/a.txt")
    with files.open_random(file, [(100, 150)]) as opened:
        before = served.sent["/a.txt"]
        opened.seek(110)
        assert opened.read(20) == bytes(range(110, 130))
        assert served.sent["/a.txt"] == before
        opened.seek(-5, 2)
        assert opened.read() == bytes(range(195, 200))
        assert served.sent["/a.txt"] == before + 5


@pytest.mark.parametrize("kind", ["gz", "zst", "xz", "bz2"])
def test_where_a_server_marks_no_end_the_compressed_data_do(tmp_path, kind):
    compress = {"gz": gzip, "zst": zstandard, "xz": lzma, "bz2": bz2}[kind].compress
    data = compress(b"x\n" * 9999)
    (tmp_path / f"a.txt.{kind}").write_bytes(data)
    with FileServer(tmp_path, ranges=False, ends="nothing") as server:
        file = recognize(f"{server.url}/a.txt.{kind}")
        with files.open_stream(file) as stream:
            assert stream.read() == b"x\n" * 9999
        server.faults = ["cut"]
        lost = pytest.raises(ConnectionError, match="the connection ended early")
        with lost, files.open_stream(file) as stream:
            stream.read()


def test_text_without_length_or_chunks_is_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"x\n" * 9999)
    with FileServer(tmp_path, ranges=False, ends="nothing") as server:
        with refuses(f"{server.url}/a.txt"), files.open_stream(recognize(f"{server.url}/a.txt")):
            pass


@pytest.mark.parametrize("change", [lambda path: os.utime(path, ns=(1, 1)), os.unlink])
@pytest.mark.parametrize("compression", ["", ".gz"])
def test_a_local_file_that_changes_or_goes_is_noticed(tmp_path, compression, change):
    path = tmp_path / f"a.txt{compression}"
    path.write_bytes(gzip.compress(b"x\n" * 99) if compression else b"x\n" * 99)
    (file,) = match_files([str(path)])
    changed = lambda: refuses(str(path))
    with changed(), files.open_stream(file) as stream:  # during a stream, at its end
        assert len(stream.read()) == 198
        change(path)
    for read in (lambda: files.read_range(file, 0, 10), lambda: files.open_raw(file)):
        with changed():
            read()


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
    monkeypatch.setattr(files, "filesystem", lambda url: (bucket, url.removeprefix("gs://")))
    (file,) = match_files(["gs://b/*.txt"])
    before = Listing((file,)).contents
    assert files.read_range(file, 1, 3) == b"bc"
    bucket.generation = "2"
    with refuses("gs://b/a.txt"):
        files.read_range(file, 1, 3)
    # The same bytes under a new generation.
    assert Listing(match_files(["gs://b/*.txt"])).contents == before


def test_a_stream_from_a_bucket_is_of_the_generation_that_was_listed(monkeypatch):
    bucket = Bucket()
    monkeypatch.setattr(files, "filesystem", lambda url: (bucket, url.removeprefix("gs://")))
    (file,) = match_files(["gs://b/*.txt"])
    with files.open_stream(file) as stream:
        assert stream.read() == b"abc"
    with refuses("gs://b/a.txt"), files.open_stream(file) as stream:
        bucket.generation = "2"
        stream.read()
