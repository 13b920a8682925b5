"""A file is replaced at once, or not at all."""

import os

import pytest

from common.atomic_file import replace_file


def test_a_file_is_replaced(tmp_path):
    path = tmp_path / "page.html"
    path.write_bytes(b"old")
    replace_file(str(path), "nou: ț".encode())
    assert path.read_text() == "nou: ț"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]


def test_a_file_is_kept_until_the_new_one_is_complete(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        replace_file(str(path), b"new")
    assert path.read_bytes() == b"old"
