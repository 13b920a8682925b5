"""Both formats, in all their versions, are read alike and without jax."""

import contextlib
import glob
import os
import pathlib
import random
import shutil
import subprocess
import sys

import msgpack
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from fakes import checkpoints, damage
from fakes.paths import ROOT
from t5x.checkpointing.lazy_array import DamagedCheckpoint
from t5x.checkpointing.reader import open_checkpoint

KERNEL = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("ocdbt", [True, False])
def test_one_file_a_chunk_or_one_database_makes_no_difference(tmp_path, ocdbt):
    tree = {"target": {"w": KERNEL, "empty": {}}, "state": {"step": np.int32(3)}}
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt)
    ocp.Checkpointer(handler).save(tmp_path / "checkpoint_3/state", tree)
    arrays = open_checkpoint(str(tmp_path / "checkpoint_3"))
    assert arrays.keys() == {"target/w", "state/step"}
    assert np.array_equal(arrays["target/w"].read(), KERNEL)
    assert arrays["state/step"].read() == 3


def test_the_form_of_2023_is_read_its_small_values_from_the_index(tmp_path):
    folder = tmp_path / "checkpoint_3/state"
    folder.mkdir(parents=True)
    index = {"target": {"w": "PLACEHOLDER://target.w"}, "state": {"step": 3}}
    (folder / "checkpoint").write_bytes(msgpack.packb(index))
    spec = {"driver": "zarr", "kvstore": f"file://{folder}/target.w/", "dtype": "float32"}
    ts.open(spec | {"metadata": {"shape": [3, 4]}}, create=True).result().write(KERNEL).result()
    arrays = open_checkpoint(str(tmp_path / "checkpoint_3"))
    assert np.array_equal(arrays["target/w"].read((slice(1, 2),)), KERNEL[1:2])
    assert arrays["state/step"].read() == 3


def test_a_lost_chunk_is_damage_and_not_zeros(tmp_path):
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False)
    path = tmp_path / "checkpoint_3/state"
    ocp.Checkpointer(handler).save(path, {"target": {"w": KERNEL}})
    for chunk in glob.glob(f"{path}/target.w/[0-9]*"):
        os.remove(chunk)
    arrays = open_checkpoint(str(tmp_path / "checkpoint_3"))
    with pytest.raises(DamagedCheckpoint, match="target/w"):
        arrays["target/w"].read()


@pytest.mark.slow
def test_neither_jax_nor_tensorflow_is_needed():
    code = "import sys, t5x.checkpointing.reader; print({'jax', 'tensorflow'} & set(sys.modules))"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert done.stdout.decode().strip() == "set()", done.stderr.decode()


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return checkpoints.saved(str(tmp_path_factory.mktemp("run")), 1)


@pytest.mark.parametrize("kind", damage.KINDS)
def test_any_damaged_file_is_damage_or_without_effect(original, tmp_path, kind):
    wanted = {name: array.read() for name, array in open_checkpoint(original).items()}
    for path in damage.files(pathlib.Path(original)):
        shutil.copytree(original, tmp_path / "copy/checkpoint_1")
        damage.damage(tmp_path / "copy/checkpoint_1" / path, kind, random.Random(0))
        with contextlib.suppress(DamagedCheckpoint):
            arrays = open_checkpoint(str(tmp_path / "copy/checkpoint_1"))
            assert {name: array.read().tolist() for name, array in arrays.items()} == {
                name: value.tolist() for name, value in wanted.items()
            }
        shutil.rmtree(tmp_path / "copy")
