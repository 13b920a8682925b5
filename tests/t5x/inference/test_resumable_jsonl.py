"""A file written chunk by chunk: a kill at any moment loses and doubles no line."""

import contextlib
import pathlib

import pytest

from common.errors import UserError
from t5x.inference import resumable_jsonl
from t5x.inference.resumable_jsonl import ResumableFile

NOTES = {"checkpoint": "runs/a/checkpoint_5", "lengths": {"inputs": 8}}


def opened(tmp_path, notes=NOTES):
    return ResumableFile(str(tmp_path / "tmp"), str(tmp_path / "out.jsonl"), notes)


def lines(*texts):
    return lambda path: pathlib.Path(path).write_text("".join(f"{text}\n" for text in texts))


def test_chunks_become_one_file_in_order(tmp_path):
    output = opened(tmp_path)
    assert output.lines == 0
    output.add(lines("a", "b"), "seen")
    for i in range(12):  # the tenth chunk comes after the ninth
        output.add(lines(i), "seen")
    assert output.lines == 14
    output.merge()
    assert (tmp_path / "out.jsonl").read_text().split() == ["a", "b", *map(str, range(12))]
    output.delete_notes()
    assert [p.name for p in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_chunk_cut_short_does_not_count(tmp_path):
    opened(tmp_path).add(lines("a", "b"), "seen")

    def cut(path):
        lines("c")(path)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path).add(cut, "seen")
    again = opened(tmp_path)
    assert again.lines == 2
    again.add(lines("c", "d"), "seen")
    again.merge()
    assert (tmp_path / "out.jsonl").read_text() == "a\nb\nc\nd\n"


def test_a_merge_cut_short_is_made_again(tmp_path):
    output = opened(tmp_path)
    output.add(lines("a"), "seen")
    (tmp_path / "tmp" / "merged.tmp").write_text("half")
    opened(tmp_path).merge()
    assert (tmp_path / "out.jsonl").read_text() == "a\n"


@pytest.mark.parametrize("removed", range(4))
def test_a_merge_killed_while_it_deletes_chunks_is_resumed(tmp_path, monkeypatch, removed):
    output, left = opened(tmp_path), [removed]
    for text in "abc":
        output.add(lines(text), "seen")
    remove = resumable_jsonl.gfile.remove

    def cut(path):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        remove(path)

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(resumable_jsonl.gfile, "remove", cut)
        output.merge()
    again = opened(tmp_path)
    assert again.finished
    assert again.lines == 3
    assert (tmp_path / "out.jsonl").read_text() == "a\nb\nc\n"
    (tmp_path / "out.jsonl").unlink()  # then the remaining chunks are resumed
    again = opened(tmp_path)
    assert (again.finished, again.lines) == (False, 3 - removed)
    for text in "abc"[again.lines :]:
        again.add(lines(text), "seen")
    again.merge()
    assert (tmp_path / "out.jsonl").read_text() == "a\nb\nc\n"


def test_lines_with_other_notes_are_not_resumed(tmp_path):
    opened(tmp_path).add(lines("a"), "seen")
    other = {**NOTES, "checkpoint": "runs/a/checkpoint_9"}
    with pytest.raises(ValueError, match=r"checkpoint_5', .*checkpoint_9'"):
        opened(tmp_path, other)
    with pytest.raises(ValueError, match="decode_fn"):  # which was not noted
        opened(tmp_path, {**NOTES, "decode_fn": "b"})
    assert opened(tmp_path).lines == 1


@pytest.mark.parametrize("merged", [False, True])
def test_lines_made_of_other_examples_are_not_resumed(merged, tmp_path):
    output = opened(tmp_path)
    output.check("nothing")  # no line is made of anything
    output.add(lines("a", "b"), "two")
    output.add(lines("c"), "three")
    if merged:
        output.merge()
    opened(tmp_path).check("three")
    for other in ("two", "others"):
        with pytest.raises(UserError, match="examples"):
            opened(tmp_path).check(other)


def test_a_chunk_that_was_not_finished_leaves_the_digest_of_those_before(tmp_path, monkeypatch):
    opened(tmp_path).add(lines("a"), "one")
    rename = resumable_jsonl.gfile.rename

    def cut(source, target, overwrite):
        if "chunk00001" in target:
            raise KeyboardInterrupt
        rename(source, target, overwrite)

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(resumable_jsonl.gfile, "rename", cut)
        opened(tmp_path).add(lines("b"), "two")
    opened(tmp_path).check("one")


def test_without_a_line_anything_may_begin(tmp_path):
    opened(tmp_path)
    assert opened(tmp_path, {"checkpoint": "other"}).lines == 0


def test_a_finished_file_is_recognized_until_its_notes_are_deleted(tmp_path):
    output = opened(tmp_path)
    output.add(lines("a"), "seen")
    assert not output.finished
    output.merge()
    assert opened(tmp_path).finished
    with pytest.raises(ValueError, match="checkpoint"):
        opened(tmp_path, {**NOTES, "checkpoint": "other"})
    output.delete_notes()
    assert not opened(tmp_path, {"checkpoint": "other"}).finished


@pytest.mark.parametrize("removed", range(3))
def test_deleting_notes_can_be_killed_at_any_moment(tmp_path, monkeypatch, removed):
    output = opened(tmp_path)
    output.add(lines("a"), "seen")
    output.merge()

    def cut(folder):
        for name in sorted(pathlib.Path(folder).iterdir(), reverse=True)[:removed]:
            name.unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(resumable_jsonl.gfile, "rmtree", cut)
        output.delete_notes()
    assert not opened(tmp_path, {"checkpoint": "other"}).finished


def test_notes_are_written_atomically_and_once(tmp_path, monkeypatch):
    def cut(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(resumable_jsonl.gfile, "rename", cut)
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path)
    assert not (tmp_path / "tmp" / "out.jsonl-notes.json").exists()
    opened(tmp_path).add(lines("a"), "seen")
    with monkeypatch.context() as patched:
        patched.setattr(resumable_jsonl.gfile, "rename", cut)
        assert opened(tmp_path).lines == 1
