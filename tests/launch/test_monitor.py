"""launch/monitor.sh opens TensorBoard for a folder or a bucket."""

import subprocess

import pytest

from fakes.paths import ROOT


@pytest.fixture
def monitor(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/usr/bin/env bash\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    return lambda *arguments: subprocess.run(
        ["bash", str(ROOT / "launch/monitor.sh"), *arguments],
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(python)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("given", "opened"),
    [
        (["gs://bucket/run"], "gs://bucket/run"),
        (["."], "."),
        ([], str(ROOT / "runs")),
        (["--port=7"], str(ROOT / "runs")),
    ],
)
def test_it_opens_a_folder_or_a_bucket(monitor, given, opened):
    (ROOT / "runs").mkdir(exist_ok=True)
    called = monitor(*given).stdout.splitlines()
    assert called[:3] == ["-m", "report.tensorboard", f"--logdir={opened}"]
    assert called[-1] == (given[-1] if given and given[-1][0] == "-" else "--reload_interval=15")


def test_a_missing_folder_is_one_sentence(monitor):
    process = monitor("nowhere")
    assert process.returncode == 2
    assert process.stderr == "monitor.sh: nowhere is not a folder: name the MODEL_DIR of a run.\n"
