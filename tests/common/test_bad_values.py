"""Every command refuses every bad value by the name of its setting, and writes nothing."""

import tempfile

import pytest

from fakes import bad_values, refusals


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return refusals.write_files(tmp_path_factory.mktemp("files"))


def test_no_value_is_there_twice():
    rows = [(row.command, row.arguments) for row in bad_values.BAD_VALUES]
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize("row", bad_values.BAD_VALUES, ids=lambda row: f"{row.command} {row.value}")
def test_a_bad_value_is_refused(row, files, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    outcome = refusals.in_process(row, tmp_path / "folder", files)
    assert (outcome.status, outcome.fault) == (row.status, ""), outcome
    assert not row.named or any(map(outcome.names, row.named)), outcome
