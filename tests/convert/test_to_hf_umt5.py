"""A umT5, with a bias table in each layer, is trained, published and converted back."""

import json

import numpy as np
import pytest

from common.gin_reader import Bindings
from convert import __main__ as converter
from convert import atomic_output
from convert.run import rewrite
from convert.sizes import T5Sizes, of_gin
from fakes import toy
from t5x.checkpointing.reader import open_checkpoint

SIZES = T5Sizes(
    vocab_size=264,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=32,
    num_encoder_layers=2,
    num_decoder_layers=1,
    own_relative_bias=True,
)


@pytest.mark.slow
def test_trained_published_and_taken_back(tmp_path):
    model = toy.model(own_relative_bias=True, num_encoder_layers=2)
    toy.train(tmp_path / "run", model=model)
    trained = open_checkpoint(str(tmp_path / "run" / "checkpoint_8"))
    tables = [trained[f"target/encoder/layers_{i}/relpos_bias/rel_embedding"] for i in range(2)]
    first, second = (
        open_checkpoint(str(tmp_path / "run" / f"checkpoint_{step}"))[
            "target/encoder/layers_1/relpos_bias/rel_embedding"
        ].read()
        for step in (4, 8)
    )
    assert not np.array_equal(first, second)  # it learns
    assert not np.array_equal(tables[0].read(), tables[1].read())
    (tmp_path / "run" / "config.gin").write_text(rewrite.gin_of(SIZES))
    assert converter.main([str(tmp_path / "run" / "checkpoint_8"), "--vocabulary", "none"]) == 0
    folder = tmp_path / "run_hf" / "checkpoint_8"
    assert atomic_output.read_record(folder)["proof"]["largest_difference"] < 1e-4
    assert json.loads((folder / "config.json").read_text())["model_type"] == "umt5"
    assert converter.main(["from_hf", str(folder), str(tmp_path / "back")]) == 0
    back = open_checkpoint(str(tmp_path / "back" / "checkpoint_0"))
    for name, array in trained.items():
        if name.startswith("target/"):
            assert np.array_equal(back[name].read(), array.read()), name
    gin = Bindings.read((tmp_path / "back" / "config.gin").read_text())
    assert of_gin(gin) == SIZES
