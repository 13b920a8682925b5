"""A model's loss, scores and predictions, from its logits by hand."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import seqio

import gin
from fakes import toy, valid_run
from fakes.golden import Golden
from fakes.refuses import refuses
from t5x import decoding, losses, models
from t5x.checkpointing.layer_stacking import stack_layers


@pytest.fixture(scope="module")
def case():
    golden = Golden("t5_1_1")
    return golden.model(), stack_layers(golden.tree("init_params")), golden.batch(0)


@pytest.fixture(scope="module")
def plain_loss(case):
    """Loss and sums without normalization."""
    model, params, batch = case
    loss, (_, sums) = jax.jit(lambda p, b: model.loss_fn(p, b, None))(params, batch)
    return loss, sums


def test_the_loss_is_normalized_and_its_sums_but_the_z_loss_are_not(case, plain_loss):
    _, params, batch = case
    model = Golden("t5_1_1").model()
    model.loss_normalizing_factor = "NUM_REAL_TARGET_TOKENS"
    loss, (_, sums) = jax.jit(lambda p, b: model.loss_fn(p, b, None))(params, batch)
    tokens = batch["decoder_loss_weights"].sum()
    np.testing.assert_allclose(loss, plain_loss[0] / tokens, rtol=1e-5)
    np.testing.assert_allclose(sums.pop("z_loss"), plain_loss[1]["z_loss"] / tokens, rtol=1e-5)
    for name, value in ((k, v) for k, v in plain_loss[1].items() if k != "z_loss"):
        np.testing.assert_allclose(sums[name], value, rtol=1e-5)


def test_an_evaluation_has_no_dropout(case, plain_loss):
    _, params, batch = case
    model = Golden("t5_1_1").model(dropout_rate=0.5)
    loss, _ = jax.jit(model.eval_fn)(params, batch, jax.random.key(0))
    np.testing.assert_allclose(loss, plain_loss[0], rtol=1e-6)


class PositionTable(nn.Module):
    """A network of learned positions alone, whose signature has what upstream's has."""

    @nn.compact
    def __call__(
        self, encoder_input_tokens, decoder_input_tokens, decoder_target_tokens,
        encoder_segment_ids=None, decoder_segment_ids=None,
        encoder_positions=None, decoder_positions=None, *, enable_dropout=True,
    ):  # fmt: skip
        table = nn.Embed(8, 3, name="table")
        return table(decoder_positions) + table(encoder_positions).sum(1, keepdims=True)


class NoTable(nn.Module):
    """A network whose signature has no positions."""

    @nn.compact
    def __call__(
        self, encoder_input_tokens, decoder_input_tokens, decoder_target_tokens,
        encoder_segment_ids=None, decoder_segment_ids=None, *, enable_dropout=True,
    ):  # fmt: skip
        return nn.Embed(8, 3, name="table")(decoder_target_tokens)


@pytest.mark.parametrize("network", [PositionTable, NoTable])
def test_a_network_is_given_the_positions_that_its_signature_has(network):
    model = models.EncoderDecoderModel(network(), None, None, None)
    ids = jnp.array([[5, 6, 7, 4]])
    names = ("encoder_input_tokens", "decoder_input_tokens", "decoder_target_tokens")
    batch = dict.fromkeys(names, ids)
    variables = model.get_initial_variables(jax.random.key(0), dict.fromkeys(batch, (1, 4)))
    table = jnp.arange(24.0).reshape(8, 3)
    assert variables["params"]["table"]["embedding"].shape == table.shape
    positions = {"encoder_positions": ids - 4, "decoder_positions": jnp.array([[0, 1, 0, 1]])}
    logits = model.logits({"table": {"embedding": table}}, batch | positions)
    expected = table[positions["decoder_positions"]] + table[ids - 4].sum(1)
    np.testing.assert_array_equal(logits, expected if network is PositionTable else table[ids])


# A decoder's layers are compiled one by one, so predictions are those of a network of one layer.
@pytest.fixture(scope="module")
def small():
    model = dataclasses.replace(toy.model(), decode_fn=decoding.beam_search)
    return model, toy.random_params(model.module.config)


@pytest.fixture(scope="module")
def inputs():
    ids = np.random.default_rng(0).integers(2, 264, (3, 7)).astype(np.int32)
    return {"encoder_input_tokens": ids, "decoder_input_tokens": np.zeros((3, 5), np.int32)}


def predict(small, inputs, **settings):
    model, params = small
    function = lambda p, b: model.predict_batch_with_aux(p, b, **settings)
    return jax.jit(function)(params, inputs)


@pytest.fixture(scope="module")
def best(small, inputs):
    return predict(small, inputs, num_decodes=3)


def test_all_decodes_stand_worst_first_and_the_best_is_the_last(small, inputs, best):
    ids, aux = predict(small, inputs, num_decodes=3, return_all_decodes=True)
    assert (ids.shape, aux["scores"].shape) == ((3, 3, 5), (3, 3))
    assert (np.diff(aux["scores"], axis=1) >= 0).all()
    best, best_aux = best
    np.testing.assert_array_equal(best, ids[:, -1])
    np.testing.assert_array_equal(best_aux["scores"], aux["scores"][:, -1])
    assert best.dtype == jnp.int32


def test_padded_rows_and_inputs_change_no_prediction(small, inputs, best):
    ids, _ = best
    wide = np.pad(inputs["encoder_input_tokens"], ((0, 1), (0, 4)))
    batch = {"encoder_input_tokens": wide, "decoder_input_tokens": np.zeros((4, 5), np.int32)}
    padded, _ = predict(small, batch, num_decodes=3)
    np.testing.assert_array_equal(padded[:3], ids)


def test_gin_binds_the_number_of_decodes(small, inputs):
    """In upstream's words, class first or method first; what is built decodes so."""
    with valid_run.gin_apart():
        gin.parse_config("""
            from __gin__ import dynamic_registration
            from t5x import models
            from t5x import decoding
            MODEL = @models.EncoderDecoderModel()
            models.EncoderDecoderModel.module = None
            models.EncoderDecoderModel.input_vocabulary = None
            models.EncoderDecoderModel.output_vocabulary = None
            models.EncoderDecoderModel.optimizer_def = None
            models.EncoderDecoderModel.decode_fn = @decoding.beam_search
            models.EncoderDecoderModel.predict_batch_with_aux.num_decodes = 3
            models.EncoderDecoderModel.predict_batch_with_aux.return_all_decodes = True
            decoding.beam_search.alpha = 0.9
        """)
        with gin.config_scope("MODEL"):
            model = gin.get_configurable("gin.macro")()
        assert isinstance(model, models.EncoderDecoderModel)
        model.module, model.output_vocabulary = small[0].module, small[0].output_vocabulary
        ids = jax.eval_shape(model.predict_batch, small[1], inputs)
        assert ids.shape == (3, 3, 5)
        assert gin.query_parameter("decoding.beam_search.alpha") == 0.9


def test_features_come_from_seqio_unless_bound(case):
    model = case[0]
    assert model.FEATURE_CONVERTER_CLS is seqio.EncDecFeatureConverter
    bound = models.EncoderDecoderModel(None, None, None, None, feature_converter_cls=dict)
    assert bound.FEATURE_CONVERTER_CLS is dict


def test_label_smoothing_and_z_loss_reach_the_loss(case):
    _, params, batch = case
    model = Golden("t5_1_1").model()
    model.z_loss, model.label_smoothing = 0.01, 0.1
    loss, _ = jax.jit(lambda p, b: model.loss_fn(p, b, None))(params, batch)
    logits = jax.jit(case[0].logits)(params, batch)
    token_losses, _ = losses.cross_entropy(logits, batch["decoder_target_tokens"], 0.01, 0.1)
    np.testing.assert_allclose(
        loss, (token_losses * batch["decoder_loss_weights"]).sum(), rtol=1e-5
    )


def test_defaults_of_decoding_belong_to_the_model(small, inputs):
    model, params = small
    defaults = models.DecoderParams(return_all_decodes=True, num_decodes=2)
    model = dataclasses.replace(model, default_decoder_params=defaults)
    shape = lambda **given: (
        jax.eval_shape(lambda p, b: model.predict_batch_with_aux(p, b, **given), params, inputs)[
            0
        ].shape
    )
    assert shape() == (3, 2, 5)
    assert shape(num_decodes=3) == (3, 3, 5)
    assert shape(return_all_decodes=False) == (3, 5)


def test_a_key_and_parameters_reach_the_decode_function_as_upstream(small, inputs):
    """The key is the third argument of both functions."""
    model, params = small
    with pytest.raises(NotImplementedError, match="return_intermediates"):
        model.score_batch(params, inputs, return_intermediates=True)
    seen = []

    def decode(*, inputs, num_decodes, decode_rng=None, alpha=None, **_):
        seen.append((alpha, decode_rng))
        return inputs[:, None].repeat(num_decodes, 1), inputs[:, :1].repeat(num_decodes, 1)

    model = dataclasses.replace(model, decode_fn=decode)
    key = jax.random.key(3)
    jax.eval_shape(lambda p: model.predict_batch_with_aux(p, inputs, key, {"alpha": 2}), params)
    jax.eval_shape(lambda p: model.predict_batch(p, inputs, key), params)
    jax.eval_shape(lambda p: model.predict_batch(p, inputs), params)
    assert seen == [(2, key), (None, key), (None, None)]
    with refuses("predict_batch_with_aux"):
        model.predict_batch_with_aux(params, inputs, key, {"decode_rng": key})


@pytest.mark.parametrize("decode_fn", [decoding.beam_search, decoding.temperature_sample])
def test_a_prompt_begins_each_decode_and_loses_its_end(small, inputs, decode_fn):
    model = dataclasses.replace(small[0], decode_fn=decode_fn)
    prompts = np.array([[0, 7, 9, 1, 0], [0, 8, 1, 0, 0], [0, 1, 0, 0, 0]], np.int32)
    batch = {**inputs, "decoder_input_tokens": prompts}
    decode = lambda **how: np.asarray(predict((model, small[1]), batch, **how)[0])
    prompted, plain = decode(prompt_with_targets=True), decode(prompt_with_targets=False)
    assert prompted[0, :2].tolist() == [7, 9]
    assert prompted[1, 0] == 8
    np.testing.assert_array_equal(prompted[2], plain[2])  # only an end: no prompt
    if decode_fn is decoding.temperature_sample:  # greedy
        logits = jax.jit(model.logits)(
            small[1], {**batch, "decoder_target_tokens": np.ones_like(prompts)}
        )
        assert prompted[0, 2] == np.asarray(logits)[0, 2].argmax()


def test_decoding_beyond_the_targets_length_is_refused(small, inputs):
    """Attention over a shorter cache would read the wrong memory and score it."""
    decode_fn = functools.partial(decoding.beam_search, max_decode_len=9)
    model = dataclasses.replace(small[0], decode_fn=decode_fn)
    with refuses("decode_fn"):
        predict((model, small[1]), inputs)
