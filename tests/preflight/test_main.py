"""The command prints a table, writes JSON, and reports failures by its status."""

import json
import os
import subprocess
import sys

import pytest

from fakes.paths import ROOT
from preflight.results import FAILS, NOT_CHECKED, OK

TINY = "gin/ro_t5x_tiny.gin"


def command(*flags):
    return subprocess.run(
        [sys.executable, "-m", "preflight", *flags],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


def test_the_command_refuses_an_unknown_slice_and_names_the_nearest(capsys):
    from preflight.__main__ import main

    assert main(["--slice", "v4-9"]) == 2
    said = capsys.readouterr().err
    assert "'v4-9' is not a known TPU slice; set --slice to one like v4-8" in said
    with pytest.raises(SystemExit):
        main(["--gin_file", TINY])


def test_the_command_prints_a_table_and_reports_by_its_status(tmp_path):
    json_file = tmp_path / "out.json"
    done = command(
        *("--gin_file", TINY, "--slice", "v4-8", "--offline", "--json", str(json_file)),
        *("--gin.BATCH_SIZE=6", f"--gin.MODEL_DIR='{tmp_path}/run'", f"--cache={tmp_path}/cache"),
    )
    assert done.returncode == 1, done.stderr[-2000:]
    said = json.loads(json_file.read_text())["checks"]
    assert said["batch"]["verdict"] == FAILS
    assert "BATCH_SIZE to a multiple of 4" in said["batch"]["to_set"]
    assert said["partitions"]["verdict"] == OK
    # The trainer refuses the same.
    assert said["memory"]["verdict"] == FAILS
    assert "multiple of 4" in said["memory"]["figure"]
    assert said["speed"]["verdict"] == NOT_CHECKED
    assert "what to set" in done.stdout
    assert not (tmp_path / "run").exists()
