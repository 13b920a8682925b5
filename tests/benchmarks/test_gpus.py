"""Every network is timed in each way that this machine has, and the others say why not."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import gpus
from benchmarks.baselines import tokamax_attention
from t5x.kernels import cudnn

pytestmark = pytest.mark.usefixtures("gin_apart")


@pytest.mark.parametrize(
    ("recipe", "config"),
    [
        ("ro_bert_tiny", "BertConfig"),
        pytest.param("ro_t5x_tiny", "T5Config", marks=pytest.mark.slow),
        pytest.param("ro_t5gemma2_tiny", "T5Gemma2Config", marks=pytest.mark.slow),
    ],
)
def test_a_table_has_each_way_of_a_network(recipe, config, monkeypatch, tmp_path):
    monkeypatch.setitem(gpus.MODELS, "tiny", gpus.Model(recipe, config, 2))
    out = tmp_path / "gpus"
    flags = ["--models", "tiny", "--ways", "flash", "xla", "--turns", "2", "--out", str(out)]
    gpus.main(flags)
    flash, xla = json.loads(out.with_suffix(".json").read_text())["rows"]
    assert (flash["way"], xla["way"]) == ("flash", "xla")
    assert "GPU" in flash["refused"]
    assert flash["seconds"] is None
    assert xla["tokens_per_second"] > 2 / xla["seconds"]
    lines = out.with_suffix(".md").read_text().splitlines()
    assert len({line.count("|") for line in lines[2:]}) == 1


def test_the_models_are_recipes_of_these_networks():
    for model in gpus.MODELS.values():
        run, _, shapes, _ = gpus.build(gpus.dataclasses.replace(model, rows=1))
        assert type(run.model.module.config).__name__ == model.config
        assert shapes["encoder_input_tokens"].shape[0] == 1


def test_tokamax_takes_the_place_of_cudnn():
    with tokamax_attention.by_tokamax():
        assert cudnn.attend is tokamax_attention.attend
    assert cudnn.attend is not tokamax_attention.attend
    pytest.importorskip("tokamax")
    greatest = tokamax_attention.differences(jnp.float32)
    np.testing.assert_allclose(list(greatest.values()), 0, atol=1e-5)
