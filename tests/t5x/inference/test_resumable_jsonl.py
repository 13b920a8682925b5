"""A file written chunk by chunk: a kill at any moment loses and doubles no line."""

import contextlib
import itertools
import pathlib

import pytest

from fakes.refuses import refuses
from t5x.inference import resumable_jsonl
from t5x.inference.resumable_jsonl import ResumableFile

NOTES = {"checkpoint": "runs/a/checkpoint_5", "lengths": {"inputs": 8}}


def opened(folder, notes=NOTES):
    return ResumableFile(str(folder / "tmp"), str(folder / "out.jsonl"), notes)


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


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("left", ["", "fi", "first\n", "first\nsec"])
def test_a_chunk_that_is_cut_is_made_again_with_those_after_it(tmp_path, number, left, caplog):
    output = opened(tmp_path)
    for i in range(3):
        output.add(lines("first", f"second {i}"), f"digest {i}")
    pathlib.Path(f"{output.stem}-chunk{number:05}").write_text(left)
    again = opened(tmp_path)
    assert again.lines == 2 * number
    assert f"-chunk{number:05}" in caplog.text
    for i in range(number, 3):
        again.check(f"digest {i - 1}")
        again.add(lines("first", f"second {i}"), f"digest {i}")
    again.merge()
    whole = "first\nsecond 0\nfirst\nsecond 1\nfirst\nsecond 2\n"
    assert (tmp_path / "out.jsonl").read_text() == whole
    assert opened(tmp_path).finished
    (tmp_path / "out.jsonl").write_text(whole[: -1 if left else -9])  # in a line, or at its end
    cut = opened(tmp_path)
    assert (cut.finished, cut.lines) == (False, 0)


class Killed(BaseException):
    """The process was taken away."""


class Kill:
    """Counts the changes of files, and kills instead of change `at`."""

    def __init__(self, patch, at: int):
        self.left = at
        for name in ("rename", "remove"):
            patch.setattr(resumable_jsonl.gfile, name, self._counted(name))
        patch.setattr(resumable_jsonl.gfile, "rmtree", self._rmtree)

    def change(self):
        if not self.left:
            raise Killed
        self.left -= 1

    def _counted(self, name):
        original = getattr(resumable_jsonl.gfile, name)

        def changed(*args, **kwargs):
            self.change()
            return original(*args, **kwargs)

        return changed

    def _rmtree(self, folder):
        for path in sorted(pathlib.Path(folder).iterdir(), reverse=True):
            self.change()
            path.unlink()
        self.change()
        pathlib.Path(folder).rmdir()


def write_all(folder, change=lambda: None):
    """Write the lines a, b and c, each a chunk, from where an earlier process was killed."""

    def write(text):
        def half(path):
            pathlib.Path(path).write_text("ha")
            change()
            lines(text)(path)

        return half

    output = opened(folder)
    output.check("abc"[: output.lines])  # made of the same examples
    if not output.finished:
        for i in range(output.lines, 3):
            output.add(write("abc"[i]), "abc"[: i + 1])
        output.merge()
    assert opened(folder).finished
    output.delete_notes()


@pytest.mark.parametrize("is_removed", [False, True])  # a file that was complete
def test_a_kill_at_any_change_of_a_file_loses_and_doubles_no_line(
    tmp_path, monkeypatch, is_removed
):
    for at in itertools.count():
        folder = tmp_path / str(at)
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            kill = Kill(patch, at)
            write_all(folder, kill.change)
        if is_removed:
            (folder / "out.jsonl").unlink(missing_ok=True)
        write_all(folder)
        assert (folder / "out.jsonl").read_text() == "a\nb\nc\n", at
        assert [path.name for path in folder.iterdir()] == ["out.jsonl"]
        if kill.left:  # not reached
            break
    assert at > 12


def test_lines_and_finished_files_of_other_notes_or_examples_are_not_resumed(tmp_path):
    opened(tmp_path, {"checkpoint": "other"})  # which has no line yet
    opened(tmp_path).add(lines("a"), "one")
    for is_finished in (False, True):
        assert opened(tmp_path).finished is is_finished
        opened(tmp_path).check("one")
        with refuses(tmp_path / "tmp") as refusal:
            opened(tmp_path).check("others")
        assert "examples" in refusal.value.why
        changes = {"checkpoint": "runs/a/checkpoint_9", "decode_fn": "b"}  # which was not noted
        for name, value in changes.items():
            with refuses(tmp_path / "tmp") as refusal:
                opened(tmp_path, {**NOTES, name: value})
            assert name in refusal.value.why
            assert value in refusal.value.why
        if not is_finished:
            opened(tmp_path).merge()
    opened(tmp_path).delete_notes()
    assert not opened(tmp_path, {"checkpoint": "other"}).finished
