"""The gin files of encoders make the networks that transformers has."""

import jax
import pytest
import torch
import transformers

import gin
from convert.encoders.sizes import EncoderSizes, hugging_face_config
from fakes.paths import ROOT
from t5x import gin_utils
from t5x.optimizers import DecoupledOptimizer
from tasks.objectives.registry import get_objective

FAMILIES, SIZES = ("bert", "roberta", "modernbert"), ("tiny", "base", "large")


def macro(name):
    with gin.config_scope(name):
        return gin.get_configurable("gin.macro")()


@pytest.fixture(autouse=True)
def cleared():
    gin.clear_config()
    yield
    gin.clear_config()


def model_of(family, size):
    path = f"t5x/examples/encoder/{family}/{size}.gin"
    gin_utils.parse_gin_flags(
        [], [path], ["DROPOUT_RATE = 0.2", "VOCABULARY = None"], finalize_config=False
    )
    return macro("MODEL")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", SIZES)
def test_a_network_has_as_many_parameters_as_that_of_transformers(family, size):
    model = model_of(family, size)
    config = model.module.config
    assert config.dropout_rate == config.attention_dropout_rate == 0.2
    variables = jax.eval_shape(
        lambda: model.get_initial_variables(jax.random.key(0), {"encoder_input_tokens": (1, 4)})
    )
    count = sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))

    fields = {k: v for k, v in vars(config).items() if k in EncoderSizes.__dataclass_fields__}
    theirs = hugging_face_config(EncoderSizes(family, **fields))
    theirs = transformers.AutoConfig.for_model(**theirs)
    with torch.device("meta"):
        network = getattr(transformers, theirs.architectures[0])(theirs)
    assert count == sum(parameter.numel() for parameter in network.parameters())


OBJECTIVES = {"bert": "bert", "roberta": "masked_lm", "modernbert": "modernbert"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_of_the_familys_objective_is_computed_at_once(family):
    density = get_objective(OBJECTIVES[family]).masking.density
    assert density < model_of(family, "base").predicted_share


def test_every_file_is_counted():
    found = {(path.parent.name, path.stem) for path in ROOT.glob("t5x/examples/encoder/*/*.gin")}
    assert found == {(family, size) for family in FAMILIES for size in SIZES}


@pytest.mark.parametrize("family", FAMILIES)
def test_norms_and_biases_do_not_decay(family):
    model = model_of(family, "tiny")
    assert isinstance(model.optimizer_def, DecoupledOptimizer)
    variables = jax.eval_shape(
        lambda: model.get_initial_variables(jax.random.key(0), {"encoder_input_tokens": (1, 4)})
    )
    params = jax.tree.map(lambda x: x, variables["params"])
    decays = model.optimizer_def.decays(params)
    for (path, shape), decay in zip(
        jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(decays), strict=True
    ):
        stacked = "layers" in jax.tree_util.keystr(path)
        assert decay == (len(shape.shape) - stacked == 2), path
