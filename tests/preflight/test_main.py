"""The command prints a table, writes JSON, and reports failures by its status."""

import json

import pytest

from common.errors import UserError
from common.tables import FAILS, NOT_CHECKED, OK
from preflight.__main__ import main

pytestmark = pytest.mark.usefixtures("gin_apart")
TINY = "gin/ro_t5x_tiny.gin"


def flags(folder):
    return [
        *("--gin_file", TINY, "--slice", "v4-8", "--offline", "--json", f"{folder}/out.json"),
        *("--gin.BATCH_SIZE=6", f"--gin.MODEL_DIR='{folder}/run'", f"--cache={folder}/cache"),
    ]


def test_checks_are_printed_and_written_and_a_failure_is_the_status(tmp_path, monkeypatch, capsys):
    def compile_step(request, cache=None):
        raise UserError("BATCH_SIZE", 6, "but 4 devices share it", "set it to a multiple of 4")

    monkeypatch.setattr("preflight.search.compile_step", compile_step)
    assert main(flags(tmp_path)) == 1
    checks = json.loads((tmp_path / "out.json").read_text())["checks"]
    assert checks["batch"]["verdict"] == FAILS
    assert "multiple of 4" in str(checks["batch"])
    assert checks["partitions"]["verdict"] == OK
    assert (checks["memory"]["verdict"], checks["speed"]["verdict"]) == (FAILS, NOT_CHECKED)
    assert checks["memory"]["to_set"] == "set it to a multiple of 4"
    assert "what to set" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()
