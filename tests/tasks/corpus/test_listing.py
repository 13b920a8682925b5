"""Files are found by patterns, folders and lists; a listing knows their contents and versions."""

import gzip
import os
import shutil

import pytest

from common.errors import UserError
from fakes.file_server import FileServer
from fakes.refuses import refuses
from tasks.corpus import listing
from tasks.corpus.listing import Listing, join_parallel, match_files
from tasks.corpus.source import CorpusSource
from tasks.corpus.storage import files
from tasks.corpus.storage.files import CorpusFile


def names(pattern):
    return [file.url.rsplit("/", 1)[1] for file in match_files([str(pattern)])]


def write(folder, *names):
    for name in names:
        (folder / name).write_text("x\n")


def test_patterns_give_each_file_once_in_order(tmp_path, monkeypatch):
    write(tmp_path, "b.txt", "a.txt", "c.txt")
    found = match_files([f"{tmp_path}/[ab].txt", f"{tmp_path}/b.txt"])
    assert [file.url for file in found] == [f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert names("~/a*.txt") == ["a.txt"]
    with refuses(f"{tmp_path}/*.csv"):
        match_files([f"{tmp_path}/*.csv"])
    for pattern in ("absent/*.csv", "absent/a.csv"):
        with refuses(f"{tmp_path}/{pattern}"):
            match_files([f"{tmp_path}/{pattern}"])


@pytest.mark.parametrize("pattern", ["*.txt", "[ab].txt", "**/a.txt?x=1"])
def test_a_pattern_over_http_is_refused_with_what_to_write(pattern):
    with refuses() as refusal:
        match_files([f"https://example.org/{pattern}"])
    assert "'@https://" in refusal.value.to_set
    (found,) = match_files(["https://example.org/a.txt?key=*"])
    assert found.url.endswith("key=*")


def test_a_list_names_files_by_address_path_or_pattern(tmp_path):
    (tmp_path / "corpus").mkdir()
    write(tmp_path / "corpus", "a.txt", "b.txt")
    here = tmp_path / "all.map"
    lines = ["# two files", "", "corpus/[ab].txt", "https://example.org/a.txt.gz", "/nowhere/*.txt"]
    here.write_text("\n".join(lines[:-1]))
    found = [file.url for file in match_files([f"@{here}"])]
    folder = f"{tmp_path}/corpus"
    assert found == [f"{folder}/a.txt", f"{folder}/b.txt", lines[3]]
    here.write_text("\n".join(lines))
    with refuses("/nowhere/*.txt", where="all.map"):
        match_files([f"@{here}"])
    here.write_text("# nothing\n")
    with refuses(f"{tmp_path}/all.map"):
        match_files([f"@{here}"])
    with refuses(f"{tmp_path}/all.map") as refusal:
        match_files([str(here)])
    assert f"'@{here}'" in refusal.value.to_set


def test_a_list_is_read_in_part_by_the_names_of_its_files(tmp_path):
    listed = ["10_1.txt", "9_1.txt", "9_2.txt", "8_1.txt"]
    write(tmp_path, *listed)
    (tmp_path / "all.map").write_text("\n".join(listed))
    assert names(f"@{tmp_path}/all.map#10_*|9_*") == listed[:3]
    with refuses(f"{tmp_path}/all.map"):
        match_files([f"@{tmp_path}/all.map#7_*"])


@pytest.mark.parametrize("name", ["ro.map", "ro.txt.gz"])
def test_a_list_may_be_on_a_server_and_name_files_beside_it(tmp_path, name):
    (tmp_path / "ro").mkdir()
    lines = b"1.txt\n/ro/2.txt\nhttps://example.org/3.txt\n"
    (tmp_path / "ro" / name).write_bytes(gzip.compress(lines) if name.endswith("gz") else lines)
    with FileServer(tmp_path) as server:
        found = match_files([f"@{server.url}/ro/{name}"])
        near = f"{server.url}/ro"
        wanted = [f"{near}/1.txt", f"{near}/2.txt", "https://example.org/3.txt"]
        assert [file.url for file in found] == sorted(wanted)
        server.faults = ["cut"] * 9
        with pytest.raises(ConnectionError):
            match_files([f"@{server.url}/ro/{name}"])


@pytest.mark.parametrize(
    "line",
    ["file:///etc/passwd", "local:///etc/passwd", "simplecache::file:///a.txt", "sftp://h/a.txt"],
)
def test_a_list_from_a_server_names_nothing_of_this_machine(tmp_path, line):
    (tmp_path / "all.txt").write_text(line)
    with FileServer(tmp_path) as server:
        with refuses(f"{server.url}/all.txt"):
            match_files([f"@{server.url}/all.txt"])


SIGNED = "http://me:word@{0}/a.jsonl?X-Amz-Signature=5f2e&X-Amz-Expires=9"


def test_what_is_secret_in_an_address_is_in_no_message_and_no_position(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    with FileServer(tmp_path) as server:
        host = server.url.removeprefix("http://")
        url = SIGNED.format(host)
        source = CorpusSource(files={"train": url}, held_out={})
        shown = [source.name, *source.list_shards("train")]
        listed = Listing((CorpusFile(url, "jsonl", length=14),))
        source.use_listing("train", listed.as_json())
        again = Listing((CorpusFile(url.replace("5f2e", "77"), "jsonl", length=14),))
        assert source.identity("train").items() >= again.identity().items()
        for ask in (lambda: source.peek("test"), lambda: match_files([url.replace("jsonl", "x")])):
            with pytest.raises(UserError) as refused:
                ask()
            shown.append(str(refused.value))
    assert not [text for text in shown if "5f2e" in text or "word" in text]
    assert host in shown[0]


def test_parallel_files_are_joined(tmp_path):
    for name, n in (("a.ro", 2), ("a.en", 2), ("b.en", 3)):
        (tmp_path / name).write_text("x\n" * n)
    a, b, c = (match_files([str(tmp_path / n)], "text")[0] for n in ("a.ro", "a.en", "b.en"))
    joint = join_parallel(a, b)
    assert (joint.sides, joint.stored, files.size(joint)) == ((a, b), (a, b), 8)
    assert Listing.from_json(Listing((joint,)).as_json()).files == (joint,)
    with refuses("parallel files"):
        join_parallel(a, c)


def test_a_complete_listing_knows_what_servers_report_of_each_side(tmp_path):
    write(tmp_path, "a.txt")
    with FileServer(tmp_path) as server:
        file = CorpusFile(f"{server.url}/a.txt", "text")
        single, joint = Listing((file, join_parallel(file, file))).complete().files
        assert (single.length, len(single.version)) == (2, len(joint.sides[1].version))
        assert joint.sides == (single, single)


def test_contents_are_those_of_a_copy_but_not_of_another_file(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "SAMPLED_BYTES", 1 << 16)
    contents = lambda folder: Listing(match_files([f"{folder}/*.txt"])).contents
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


def test_what_another_host_listed_is_looked_at_here(tmp_path):
    write(tmp_path, "a.txt")
    listed = Listing(match_files([f"{tmp_path}/a.txt"]))
    os.utime(tmp_path / "a.txt", ns=(5, 5))
    with pytest.raises(ValueError, match="changed after it was listed"):
        files.read_range(listed.files[0], 0, 2)
    (here,) = Listing.from_json(listed.as_json()).files
    assert files.read_range(here, 0, 2) == b"x\n"
