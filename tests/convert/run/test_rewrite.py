"""A new run is written complete or not at all, and its gin names its network."""

import dataclasses

import numpy as np
import pytest

from common.gin_reader import Bindings
from convert.run import rewrite
from fakes.convert_fakes import FAMILIES, arrays, tree, write_run


@pytest.mark.parametrize("name", ["ByteVocabulary", "SentencePieceVocabulary"])
def test_the_gin_binds_the_sentinels_of_the_vocabulary(name):
    """That it binds the network is tested with the sizes."""
    bindings = Bindings.read(rewrite.gin_of(FAMILIES["t5_1_1"], {name: 0}))
    assert bindings.of(name) == {"extra_ids": 0}
    assert not Bindings.read(rewrite.gin_of(FAMILIES["t5_1_1"])).names("Vocabulary")


def test_a_written_run_is_read_again(tmp_path):
    sizes = FAMILIES["umt5"]
    old = rewrite.last_checkpoint(str(write_run(tmp_path / "old", sizes)))
    assert (old.step, old.sizes) == (3, sizes)
    with rewrite.staged_run(tmp_path / "new") as temporary:
        rewrite.write_run(temporary, 5, old.arrays, old.sizes)
        assert not (tmp_path / "new").exists()
    new = rewrite.last_checkpoint(str(tmp_path / "new"))
    assert (new.step, new.sizes) == (5, sizes)
    assert all(np.array_equal(new.arrays[n].read(), old.arrays[n].read()) for n in old.arrays)


def test_another_network_than_the_gins_is_refused(tmp_path):
    sizes = FAMILIES["t5_1_1"]
    write_run(tmp_path, sizes)
    gin = rewrite.gin_of(dataclasses.replace(sizes, num_encoder_layers=4))
    (tmp_path / "config.gin").write_text(gin)
    with pytest.raises(ValueError, match="it lacks encoder/layers_3"):
        rewrite.last_checkpoint(str(tmp_path))


def test_a_run_is_not_overwritten_and_bad_parameters_leave_nothing(tmp_path):
    sizes = FAMILIES["t5_1_1"]
    write_run(tmp_path / "old", sizes)
    with pytest.raises(ValueError, match="holds a run already"):
        with rewrite.staged_run(tmp_path / "old"):
            pytest.fail("the run would be overwritten")
    values = {f"target/{name}": value for name, value in arrays(sizes).items()}
    values["target/decoder/logits_dense/kernel"][1, 2] = np.nan
    with pytest.raises(ValueError, match="logits_dense/kernel holds 1 values that are NaN"):
        with rewrite.staged_run(tmp_path / "new") as temporary:
            rewrite.write_run(temporary, 1, tree(values), sizes)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
