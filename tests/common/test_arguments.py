"""Flags have limits, and output paths are refused before anything is written."""

import argparse

import pytest

from common import arguments
from convert import hub
from fakes.refuses import refuses
from tasks.corpus.storage.hub import find_splits


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (arguments.integer(1), {"1": 1, "20": 20}, ("0", "-1", "1.5", "a", "")),
        (arguments.number(above=0, most=1), {"1": 1.0, "1e-3": 0.001}, ("0", "2", "nan", "x")),
        (arguments.number(above=0), {"60": 60.0}, ("inf", "-1")),
        (arguments.number(), {"-2.5": -2.5}, ("inf", "nan")),
        (arguments.text, {"a": "a"}, ("", " ")),
    ],
)
def test_a_flag_has_limits(kind, good, bad, capsys):
    parser = argparse.ArgumentParser()
    parser.add_argument("--x", type=kind)
    for text, value in good.items():
        assert parser.parse_args([f"--x={text}"]).x == value
    for text in bad:
        with pytest.raises(SystemExit) as caught:
            parser.parse_args([f"--x={text}"])
        assert caught.value.code == 2
        assert "argument --x: " in capsys.readouterr().err


def test_a_mistake_is_one_sentence_and_dashes_are_underscores(capsys):
    parser = arguments.parser("python -m x", "Do.\n\n    python -m x --push_to_hub a\n\nLook.")
    parser.add_argument("--push_to_hub")
    assert parser.parse_args(["--push-to-hub", "a-b"]).push_to_hub == "a-b"
    assert vars(parser.parse_args(["--push-to-hub=user/a-b"])) == {"push_to_hub": "user/a-b"}
    for words, said in (
        (["--push_to_hbu=a"], "--push_to_hbu is not a flag; did you mean --push_to_hub?"),
        (["--zzzzz"], "--zzzzz is not a flag"),
        (["--push_to=a"], "--push_to is not a flag; did you mean --push_to_hub?"),
        (["--push_to_hub"], "argument --push_to_hub: expected one argument"),
    ):
        with pytest.raises(SystemExit, match="2"):
            parser.parse_args(words)
        assert capsys.readouterr().err == f"Error: {said} (--help lists all flags)\n"
    parser.add_argument("folder")
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args([])
    assert "    python -m x --push_to_hub a\n" in capsys.readouterr().err


def test_a_place_that_can_be_written_is_left_as_it_was(tmp_path):
    (tmp_path / "old.html").write_text("old")
    for name in ("new.html", "old.html"):
        arguments.check_output_file("--out", str(tmp_path / name))
    arguments.check_output_folder("--out", str(tmp_path / "a" / "b"))
    arguments.check_output_folder("--out", "gs://bucket/folder", buckets_too=True)
    assert [path.name for path in tmp_path.iterdir()] == ["old.html"]
    assert (tmp_path / "old.html").read_text() == "old"


def test_an_address_that_cannot_be_written_to_is_refused():
    for path in ("runs/tiny", "/runs/tiny", "gs://bucket/run", "runs/ ", "a]", "a@2", "a{b}", "~a"):
        arguments.check_address("MODEL_DIR", path)
    for scheme in ("s3", "hf", "http", "az", "file"):
        with refuses("MODEL_DIR", f"{scheme}://b/x"):
            arguments.check_address("MODEL_DIR", f"{scheme}://b/x")
    with refuses("--to", "az://b/x"):
        arguments.check_output_folder("--to", "az://b/x", buckets_too=True)
    with refuses("--out", "gs://b/x"):
        arguments.check_output_folder("--out", "gs://b/x")


@pytest.mark.parametrize(
    ("check", "path"),
    [
        *((arguments.check_output_file, p) for p in ("", "folder", "absent/x.json", "file/x.json")),
        *((arguments.check_output_file, p) for p in ("/proc/x.json", f"{'n' * 300}.json")),
        *((arguments.check_output_folder, p) for p in ("", "file", "file/inner", "/proc/inner")),
        (arguments.check_output_folder, "n" * 300),
    ],
)
def test_a_place_that_cannot_be_written_is_refused(check, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with refuses("--out", path):
        check("--out", path)
    assert {entry.name for entry in tmp_path.iterdir()} == {"folder", "file"}


@pytest.mark.parametrize("mark", ["\n", "\r", "\0", "\x1b[31m"])
def test_a_path_of_several_lines_is_refused(mark, tmp_path):
    path = f"{tmp_path}/a{mark}b"
    for check in (
        arguments.check_address,
        arguments.check_output_file,
        arguments.check_output_folder,
    ):
        with refuses("OUT", path) as refusal:
            check("OUT", path)
        assert str(refusal.value).isprintable()


@pytest.mark.parametrize("start", ["", "/", "gs://bucket/"])
@pytest.mark.parametrize("name", ["b[1]", "a*b", "what?", "[!a]/b", "a\\b"])
def test_a_path_that_a_library_reads_as_a_pattern_is_refused(start, name):
    with refuses("MODEL_DIR", start + name):
        arguments.check_address("MODEL_DIR", start + name)


def test_nothing_and_the_root_of_the_disk_are_refused():
    for path in ("", "/", "//"):
        with refuses("MODEL_DIR", path):
            arguments.check_address("MODEL_DIR", path)


def test_a_path_on_the_command_line_may_begin_at_home_or_with_file(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ana")
    parser = arguments.parser("python -m x", "Do.")
    parser.add_argument("--out")
    parser.add_argument("folder")
    for path, place in (
        ("~/x", "/home/ana/x"),
        ("~", "/home/ana"),
        ("file:///x", "/x"),
        ("~x", "~x"),
        ("a~/x", "a~/x"),
        ("gs://b/~/x", "gs://b/~/x"),
    ):
        for words in ([f"--out={path}", path], ["--out", path, path]):
            flags = parser.parse_args(words)
            assert (flags.out, flags.folder) == (place, place)


@pytest.mark.parametrize("token", ["hf_ă", "hf_a b", "hf_a\nb", "“hf_a”"])
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(token, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", token)
    doors = (
        arguments.check_hub_token,
        lambda: find_splits.__wrapped__("user/corpus", None, None),
        lambda: hub.download("user/model", ["*.json"]),
        lambda: hub.check_access("user/model"),
    )
    for door in doors:
        with refuses("HF_TOKEN") as refusal:
            door()
        assert token not in str(refusal.value)
    monkeypatch.setenv("HF_TOKEN", " hf_a\n")  # which the hub's client strips
    arguments.check_hub_token()
