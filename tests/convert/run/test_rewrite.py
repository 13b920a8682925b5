"""A new run is read again; tests/vocabulary/test_checkpoint.py has what is refused."""

import numpy as np
import pytest

from common.gin_reader import Bindings
from common.new_files import staged_folder
from convert.run import rewrite
from fakes.convert_fakes import FAMILIES, write_run


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
    with staged_folder(tmp_path / "new") as temporary:
        rewrite.write_run(temporary, 5, old.arrays, old.sizes)
        assert not (tmp_path / "new").exists()
    new = rewrite.last_checkpoint(str(tmp_path / "new"))
    assert (new.step, new.sizes) == (5, sizes)
    assert all(np.array_equal(new.arrays[n].read(), old.arrays[n].read()) for n in old.arrays)
