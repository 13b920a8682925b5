"""Values that gin binds have the types of the signatures and lie within their limits."""

import collections.abc
import inspect
import typing
from typing import Any

import jax.numpy as jnp
import pytest
import seqio

from common.errors import UserError
from common.gin_reader import Reference, statements
from fakes.refuses import refuses
from t5x import adafactor, decoding, models, optimizers, schedules, trainer, watch
from t5x.actions import EarlyStoppingAction
from t5x.array_types import PyTree
from t5x.checkpointing.config import RestoreCheckpointConfig, SaveCheckpointConfig
from t5x.eval import evaluate
from t5x.examples.encoder import network as encoder_network
from t5x.examples.encoder.model import MaskedLanguageModel
from t5x.examples.t5 import network
from t5x.examples.t5gemma2 import network as t5gemma2
from t5x.infer import infer
from t5x.input_pipeline.config import DatasetConfig
from t5x.partitioning import PjitPartitioner, standard_logical_axis_rules
from t5x.precompile import precompile
from t5x.settings import limits
from t5x.train import train
from tasks.corpus.storage.retry import RetryPolicy

NETWORKS = (network.T5Config, t5gemma2.T5Gemma2Config)
NETWORKS += (encoder_network.BertConfig, encoder_network.ModernBertConfig)
OWNERS = (train, evaluate, infer, precompile, DatasetConfig, SaveCheckpointConfig)
OWNERS += (*NETWORKS, models.EncoderDecoderModel, PjitPartitioner, trainer.Trainer)
OWNERS += (models.EncoderDecoderModel.predict_batch_with_aux, decoding.beam_search)
OWNERS += (decoding.temperature_sample, standard_logical_axis_rules, watch.Watch)
OWNERS += (schedules.create_learning_rate_scheduler, adafactor.Adafactor, optimizers.adamw)
OWNERS += (EarlyStoppingAction, models.DecoderParams, optimizers.adamw_scaled, optimizers.muon)
OWNERS += (
    seqio.SentencePieceVocabulary,
    MaskedLanguageModel,
    RetryPolicy,
)


def reference(text: str) -> Reference:
    (binding,) = statements(f"x = {text}")
    return binding.value


def test_every_limit_is_of_an_existing_parameter():
    known = {name for owner in OWNERS for name in inspect.signature(owner).parameters}
    assert limits.LIMITS.keys() <= known


@pytest.mark.parametrize("config", NETWORKS)
def test_every_number_of_a_network_has_limits(config):
    """0 heads would divide by zero, and a base of 0 would make each loss NaN."""
    parameters = inspect.signature(config).parameters.items()
    numbers = {name for name, parameter in parameters if parameter.annotation in (int, float)}
    numbers -= {"local_window"}  # which the network itself refuses
    assert {"vocab_size", "emb_dim"} <= numbers <= limits.LIMITS.keys()


def test_defaults_are_valid():
    for owner in (*OWNERS, RestoreCheckpointConfig):
        for name, parameter in inspect.signature(owner).parameters.items():
            if parameter.default is not parameter.empty and not callable(parameter.default):
                limits.check(name, parameter.default, owner, name)


VALID = [
    (1, float),
    (1.5, float | None),
    (None, int | None),
    ([1, 2], tuple[int, ...]),
    ((1, 2), list[int]),
    ([1, 2], collections.abc.Sequence[int]),
    ((), collections.abc.Sequence[str]),
    (["a", "b"], tuple[str, str]),
    ("runs/x", str | collections.abc.Sequence[str]),
    ({0: 8.15, 100: 4}, collections.abc.Mapping[int, float]),
    ({}, dict),
    ("bfloat16", jnp.dtype),
    ("float16", jnp.dtype),
    ("anything", Any),
    (3, PyTree),
    (3, "a name that is not resolved"),
    ("max", typing.Literal["max", "min"]),
    (max, collections.abc.Callable[..., Any]),
]
INVALID = [
    ("1", int),
    (1.0, int),
    (True, int),
    (1, bool),
    (True, float),
    ("a", float | None),
    (None, int),
    (1, str),
    ("ab", collections.abc.Sequence[int]),
    ("ab", tuple[str, str]),
    (["a"], tuple[str, str]),
    ([1, "2"], collections.abc.Sequence[int]),
    ({"a": 1}, collections.abc.Mapping[int, float]),
    ({0: "a"}, collections.abc.Mapping[int, float]),
    ([], dict),
    ("float99", jnp.dtype),
    ("int32", jnp.dtype),
    (5, jnp.dtype),
    ("other", typing.Literal["max", "min"]),
    (5, collections.abc.Callable[..., Any]),
    (5, optimizers.OptimizerDef),
    ("text", DatasetConfig | None),
]


@pytest.mark.parametrize(("value", "hint"), VALID)
def test_a_value_of_the_type_fits(value, hint):
    assert limits.fits(value, hint)


@pytest.mark.parametrize(("value", "hint"), INVALID)
def test_a_value_of_another_type_does_not(value, hint):
    assert not limits.fits(value, hint)


def test_a_reference_fits_by_what_is_known_of_it():
    """What a call returns is not known; a function that is not called is no number or object."""
    for hint in (int, str | None, DatasetConfig, collections.abc.Sequence[int], Any):
        assert limits.fits(reference("@made()"), hint)
    given = reference("@made")
    assert limits.fits(given, collections.abc.Callable[..., Any])
    assert limits.fits(given, Any)
    assert limits.fits([given], collections.abc.Sequence[Any])
    for hint in (int, str | None, DatasetConfig, DatasetConfig | None, bool):
        assert not limits.fits(given, hint)


def test_functions_of_other_packages_are_not_checked():
    limits.check("f", "text", inspect.getsource, "object")


# One of each kind; tests/fakes/bad_values.py has them by the hundred.
WRONG = [
    ("BATCH_SIZE", "16", DatasetConfig, "batch_size", "int"),
    ("RANDOM_SEED", "a", train, "random_seed", "int or None"),
    ("X", 5, models.EncoderDecoderModel, "optimizer_def", "OptimizerDef"),
    ("X", True, train, "stats_period", "int or None"),
    ("DROPOUT_RATE", 2.0, network.T5Config, "dropout_rate", "at least 0 and below 1"),
    ("X", float("nan"), network.T5Config, "dropout_rate", "at least 0 and below 1"),
    ("X", 0, optimizers.muon, "matrix_rate", "above 0"),
    ("MODEL_DIR", "", train, "model_dir", "empty"),
    ("X", "most", SaveCheckpointConfig, "mode", "be 'max' or 'min'"),
    ("EXPECTED_LOSS", {0: -1.0}, watch.Watch, "expected_loss", "numbers at least 0"),
    ("X", [3, -1], SaveCheckpointConfig, "checkpoint_steps", "numbers at least 0"),
]


@pytest.mark.parametrize(("name", "value", "function", "parameter", "says"), WRONG)
def test_what_is_wrong_names_setting_value_and_limit(name, value, function, parameter, says):
    with pytest.raises(UserError) as refusal:
        limits.check(name, value, function, parameter)
    error = refusal.value
    assert (error.setting, repr(error.value)) == (name, repr(value))  # NaN equals nothing
    assert f"{function.__qualname__}.{parameter} must" in error.why
    assert says in error.why


def test_a_setting_without_a_macro_is_named_once():
    with refuses("utils.DatasetConfig.batch_size", 0) as refusal:
        limits.check("utils.DatasetConfig.batch_size", 0, DatasetConfig, "batch_size")
    assert "DatasetConfig" not in refusal.value.why


def test_a_function_that_is_not_called_asks_for_its_call():
    with refuses("X") as refusal:
        limits.check("X", reference("@utils.DatasetConfig"), train, "train_dataset_cfg")
    assert "@utils.DatasetConfig()" in refusal.value.to_set
