"""The command prints a table, writes JSON, and reports failures by its status."""

import json

import pytest

from common.errors import UserError
from common.tables import FAILS, NOT_CHECKED, OK
from fakes import fake_compiler
from preflight.__main__ import main
from preflight.search import BATCH

pytestmark = pytest.mark.usefixtures("isolated_gin")
TINY = "gin/ro_t5x_tiny.gin"


def flags(folder):
    return [
        *("--gin_file", TINY, "--slice", "v4-8", "--offline", "--json", f"{folder}/out.json"),
        *("--gin.BATCH_SIZE=6", f"--gin.MODEL_DIR='{folder}/run'", f"--cache={folder}/cache"),
    ]


def test_checks_are_printed_and_written_and_a_failure_is_the_status(tmp_path, monkeypatch, capsys):
    def compile_step(request, cache=None):
        raise UserError("the batch is 6; set it to a multiple of 4.")

    monkeypatch.setattr("preflight.search.compile_step", compile_step)
    assert main(flags(tmp_path)) == 1
    checks = json.loads((tmp_path / "out.json").read_text())["checks"]
    assert checks["batch"]["verdict"] == FAILS
    assert "multiple of 4" in checks["batch"]["to_set"]
    assert checks["partitions"]["verdict"] == OK
    assert (checks["memory"]["verdict"], checks["speed"]["verdict"]) == (FAILS, NOT_CHECKED)
    assert "what to set" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("limit", "arguments", "status", "text"),
    [
        (10.0, ("--compare", "v4-8,v5e-8"), 0, "v5e-8"),
        (0.1, ("--compare", "v4-8"), 1, "no settings that were tried fit"),
        (10.0, ("--slice", "v4-8", "--sweep"), 0, "fastest with this memory"),
    ],
)
def test_slices_and_settings_are_compared(
    limit, arguments, status, text, tmp_path, monkeypatch, capsys
):
    fake_compiler.install(monkeypatch, limit=limit)
    out = tmp_path / "out.json"
    assert main(["--gin_file", TINY, *arguments, "--json", str(out)]) == status
    assert text in capsys.readouterr().out
    rows = json.loads(out.read_text())
    assert [row["slice"] if "slice" in row else row[BATCH] for row in rows]
