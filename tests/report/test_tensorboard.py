"""launch/monitor.sh's TensorBoard prints its own words, and none of TensorFlow's."""

import os
import subprocess
import sys

from fakes.paths import ROOT


def test_it_takes_tensorboards_flags_and_no_library_speaks(tmp_path):
    drop = ("TF_CPP_MIN_LOG_LEVEL",)  # which conftest sets for the tests themselves
    done = subprocess.run(
        [sys.executable, "-m", "report.tensorboard", "--inspect", f"--logdir={tmp_path}"],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key not in drop},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert f"No event files found within logdir {tmp_path}" in done.stdout
    assert "oneDNN" not in done.stderr
    assert "WARNING" not in done.stderr
