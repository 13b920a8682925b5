"""A file on a web server arrives complete and in one version, or an error says why not."""

import http.client

import pytest

from common.errors import UserError
from fakes import loopback
from fakes.file_server import FileServer
from tasks.corpus.storage import http_files, retry
from tasks.corpus.storage.http_files import open_body

DATA = bytes(range(200)) * 50
MARKS = ["ETag", "weak ETag", "Last-Modified"]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "a").write_bytes(DATA)
    http_files.probe.cache_clear()
    return tmp_path / "a"


def serve(path, **settings):
    return FileServer(path.parent, **settings)


@pytest.mark.parametrize("version", [*MARKS, None])
def test_length_version_and_ranges_are_known_by_one_request(path, version):
    with serve(path, version=version) as server:
        known = http_files.probe(f"{server.url}/a")
        assert (known.length, known.has_ranges) == (len(DATA), True)
        assert bool(known.version) == bool(version)
        assert http_files.probe(f"{server.url}/a") == known
        assert server.asked == [("/a", "bytes=0-0")]
        assert http_files.read_range(f"{server.url}/a", 10, 20, known) == DATA[10:20]


def test_an_empty_file_has_no_range_to_answer_with(path):
    path.write_bytes(b"")
    with serve(path) as server:
        known = http_files.probe(f"{server.url}/a")
        assert known == http_files.Facts(0, None)


@pytest.mark.parametrize("obeys", [True, False])
@pytest.mark.parametrize("version", MARKS)
@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_that_is_replaced_is_noticed(path, version, obeys, ranges):
    with serve(path, version=version, obeys=obeys, ranges=ranges) as server:
        known = http_files.probe(f"{server.url}/a")
        path.write_bytes(DATA[::-1])  # of the same length
        changed = pytest.raises(
            ValueError, match=r"/a changed while it was read \(its ETag or Last"
        )
        if ranges:
            with changed:
                http_files.read_range(f"{server.url}/a", 10, 20, known)
        else:
            with changed:
                open_body(f"{server.url}/a", known)


@pytest.mark.parametrize("now", [DATA + b"a", DATA[:-1], DATA[:5], b""])
def test_another_length_is_noticed_without_a_version(path, now):
    with serve(path, version=None) as server:
        url = f"{server.url}/a"
        known = http_files.probe(url)
        path.write_bytes(now)
        for read in (
            lambda: http_files.read_range(url, 10, 20, known),
            lambda: open_body(url, known),
        ):
            with pytest.raises(ValueError, match=r"its length was 10000 bytes and is"):
                read()


def test_a_wrong_answer_is_noticed_and_may_pass(path):
    with serve(path) as server:
        server.faults = ["half size"]  # which the next answer contradicts
        known = http_files.probe(f"{server.url}/a")
        with pytest.raises(ValueError, match="its length was 5000 bytes and is 10000 bytes"):
            http_files.read_range(f"{server.url}/a", 10, 20, known)
        http_files.probe.cache_clear()
        known = http_files.probe(f"{server.url}/a")
        server.faults = ["other range"]
        with pytest.raises(
            ConnectionError, match=r"asked for bytes 10-19 and answered with 'bytes"
        ):
            http_files.read_range(f"{server.url}/a", 10, 20, known)
        assert http_files.read_range(f"{server.url}/a", 10, 20, known) == DATA[10:20]


@pytest.mark.parametrize("ends", ["length", "chunks", "nothing"])
def test_a_body_is_complete_or_an_error_that_may_pass_or_marks_no_end(path, ends):
    with serve(path, ranges=False, ends=ends) as server:
        known = http_files.probe(f"{server.url}/a")
        with open_body(f"{server.url}/a", known) as body:
            assert http_files.has_end(body) == (ends != "nothing")
            assert body.read() == DATA
        server.faults = ["cut"]
        if ends != "nothing":
            with open_body(f"{server.url}/a", known) as body:
                with pytest.raises((ConnectionError, http.client.IncompleteRead)) as error:
                    list(iter(lambda: body.read(1000), b""))
            assert retry.is_transient(error.value)


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("română.jsonl", "rom%C3%A2n%C4%83.jsonl"),
        ("two words.jsonl?of=ș", "two%20words.jsonl?of=%C8%99"),
        ("a%20b+c.jsonl?at=%2F&x=[1]", "a%20b+c.jsonl?at=%2F&x=[1]"),
    ],
)
def test_an_address_may_have_letters_that_are_not_escaped(path, name, escaped):
    (path.parent / escaped).write_bytes(DATA)  # the server does not decode names
    with serve(path) as server:
        known = http_files.probe(f"{server.url}/{name}")
        assert http_files.read_range(f"{server.url}/{name}", 10, 20, known) == DATA[10:20]
        with open_body(f"{server.url}/{name}", known) as body:
            assert body.read() == DATA
    assert {path for path, _ in server.asked} == {f"/{escaped}"}


@pytest.mark.parametrize("code", [301, 302, 307])
def test_an_address_that_leads_to_a_signed_one_is_asked_anew(path, caplog, code):
    """The signed one expires after two answers."""
    signatures = []

    class Handler(loopback.Handler):
        def do_GET(self):
            if "Signature" not in self.path:
                signatures.append(2)
                return self.reply(code, headers={"Location": "/data?Signature=secret"})
            if not signatures[0] or len(signatures) % 3 == 0:
                return self.reply(403)
            first, last = (
                self.headers.get("Range", "bytes=0-9999").removeprefix("bytes=").split("-")
            )
            body = DATA[int(first) : int(last) + 1]
            ends = {"Content-Range": f"bytes {first}-{last}/{len(DATA)}"}
            return self.reply(206, body, ends)

    with loopback.Server(Handler) as server:
        url = f"{server.url}/old/a"
        known, found = http_files.probe(url), b""
        for start in range(0, len(DATA), 1000):
            read = lambda start=start: http_files.read_range(url, start, start + 1000, known)
            found += retry.retry(read, "x", retry.RetryPolicy(5, 0.01, 0.02))
        assert found == DATA
    moved = [r.getMessage() for r in caplog.records if "has moved" in r.getMessage()]
    assert len(moved) == (code != 302)
    assert "secret" not in caplog.text


@pytest.mark.parametrize("code", [401, 403, 404, 410])
def test_an_address_that_is_refused_is_named_without_its_signature(path, code):
    with serve(path) as server:
        server.faults = [code]
        with pytest.raises(UserError, match=rf"/a\?… is answered by {code} .*for a time only"):
            http_files.probe(f"{server.url}/a?Signature=secret")
