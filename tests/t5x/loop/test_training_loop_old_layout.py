"""A run of the layout before the packages resumes: state, data position, config.gin, conversion.

`tests/golden/old_layout/run.tar.xz` holds what release 0.1 wrote when `ro_t5x_tiny`, cut down to
one layer, stopped after step 10, and the rows that its shards had begun after step 15.
"""

import json
import os
import subprocess
import sys
import tarfile

import numpy as np
import pytest

from convert import __main__ as convert
from fakes.paths import FAST_COMPILATION, GOLDEN, ROOT
from fakes.pods import losses

OLD = GOLDEN / "old_layout"


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """The folder of the archive, in which the run has continued to step 15."""
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(OLD / "run.tar.xz") as archive:
        # Python 3.11 before 3.11.4, as Debian 12 has it, knows no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    flags = [f'--gin.MODEL_DIR="{folder}/run"', "--gin.TRAIN_STEPS=15"]
    done = subprocess.run(
        [sys.executable, "-m", "t5x.train", f"--gin_file={folder}/run/config.gin", *flags],
        # One device, as then.
        env=os.environ | {"XLA_FLAGS": FAST_COMPILATION},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_an_old_run_continues_with_the_losses_that_it_would_have_had(resumed):
    expected = json.loads((OLD / "losses.json").read_text())
    found = {str(k): np.frombuffer(v, np.float32)[0] for k, v in losses(resumed / "run").items()}
    assert found == pytest.approx(expected, rel=1e-5)


def test_the_data_is_at_the_position_that_it_would_have_had(resumed):
    paths = sorted((resumed / "position_15").iterdir())
    assert len(paths) == 8
    for path in paths:
        expected = np.load(path)
        found = np.load(resumed / "run/checkpoint_15/dataset" / path.name)
        assert set(expected) == set(found)
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])


def test_old_checkpoints_convert(resumed, tmp_path):
    run, out = str(resumed / "run"), tmp_path / "hf"
    flags = ["--no_verify", "--formats", "pytorch", "--all", "--out", str(out)]
    assert convert.main([run, *flags]) == 0
    for step in (10, 15):
        assert (out / f"checkpoint_{step}" / "model.safetensors").exists()
