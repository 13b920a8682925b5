"""Models: a network with its loss, its scores and its decoding, under upstream's names.

  model = EncoderDecoderModel(network.Transformer(config), vocabulary, vocabulary, Adafactor())
  loss, (weight_sum, sums) = model.loss_fn(params, batch, dropout_rng)
  ids, aux = model.predict_batch_with_aux(params, batch, num_decodes=4)

A batch holds `encoder_input_tokens` [B, I], `decoder_input_tokens` and `decoder_target_tokens`
[B, T], and where they are known `decoder_loss_weights`, `{encoder,decoder}_segment_ids`.
B batch, I input length, T target length, V vocab, N decodes.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from t5x import decoding, losses, metrics
from t5x.generation.incremental_decoder import DecoderSteps, DecoderWeights
from t5x.optimizers import OptimizerDef

Batch = Mapping[str, jax.Array]
_DECODER = "decoder laid out for steps"  # in place of the parameters' "decoder"


class EncoderDecoderModel:
    """An encoder-decoder network trained on cross entropy.

    Args:
      module: `network.Transformer` or a Flax module with its methods.
      input_vocabulary: seqio vocabulary of the inputs; only checked, never called.
      output_vocabulary: seqio vocabulary of the targets; gives the end-of-sequence id.
      optimizer_def: see `optimizers.OptimizerDef`.
      decode_fn: `decoding.beam_search` or `decoding.temperature_sample`.
      feature_converter_cls: seqio converter, default `seqio.EncDecFeatureConverter`.
      label_smoothing: see `losses.cross_entropy`.
      z_loss: see `losses.cross_entropy`.
      loss_normalizing_factor: see `losses.normalizing_factor_and_weights`.
    """

    def __init__(
        self,
        module: Any,
        input_vocabulary: Any,
        output_vocabulary: Any,
        optimizer_def: OptimizerDef,
        decode_fn: Callable[..., tuple[jax.Array, jax.Array]] = decoding.beam_search,
        feature_converter_cls: Callable[..., Any] | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        loss_normalizing_factor: Any = None,
    ):
        self.module = module
        self.input_vocabulary = input_vocabulary
        self.output_vocabulary = output_vocabulary
        self.optimizer_def = optimizer_def
        self.decode_fn = decode_fn
        self.feature_converter_cls = feature_converter_cls
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss
        self.loss_normalizing_factor = loss_normalizing_factor

    def get_initial_variables(self, rng: jax.Array, input_shapes: Mapping, input_types=None):
        """Variables of the network as Flax boxes them; lengths do not matter."""
        ids = {
            name: jnp.ones(input_shapes[name], jnp.int32)
            for name in ("encoder_input_tokens", "decoder_input_tokens")
        }
        inputs, targets = ids["encoder_input_tokens"], ids["decoder_input_tokens"]
        return self.module.init(rng, inputs, targets, targets, enable_dropout=False)

    def logits(self, params: Any, batch: Batch, dropout_rng: jax.Array | None = None) -> jax.Array:
        """Float32 logits [B, T, V]; dropout only with a key."""
        return self.module.apply(
            {"params": params},
            batch["encoder_input_tokens"],
            batch["decoder_input_tokens"],
            batch["decoder_target_tokens"],
            encoder_segment_ids=batch.get("encoder_segment_ids"),
            decoder_segment_ids=batch.get("decoder_segment_ids"),
            enable_dropout=dropout_rng is not None,
            rngs=None if dropout_rng is None else {"dropout": dropout_rng},
        )

    def loss_fn(
        self, params: Any, batch: Batch, dropout_rng: jax.Array | None
    ) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]:
        """Loss (summed, then normalized), and (sum of weights, sums of `metrics.step_sums`)."""
        logits = self.logits(params, batch, dropout_rng)
        factor, weights = losses.normalizing_factor_and_weights(self.loss_normalizing_factor, batch)
        token_losses, z_losses = losses.cross_entropy(
            logits, batch["decoder_target_tokens"], self.z_loss, self.label_smoothing
        )
        loss = (token_losses * weights).sum()
        if factor is not None:
            loss = loss / factor
        sums = metrics.step_sums(logits, batch, token_losses, z_losses, weights)
        return loss, (weights.sum(), sums)

    def eval_fn(self, params: Any, batch: Batch, dropout_rng: None = None):
        """The loss without dropout; subclasses may evaluate something else."""
        return self.loss_fn(params, batch, None)

    def score_batch(self, params: Any, batch: Batch, return_intermediates: bool = False):
        """Log-likelihood [B] of each row's targets, padding left out."""
        if return_intermediates:
            raise NotImplementedError(
                "score_batch(return_intermediates=True) is not supported; set it to False."
            )
        logits = self.logits(params, batch)
        token_losses, _ = losses.cross_entropy(logits, batch["decoder_target_tokens"])
        _, weights = losses.normalizing_factor_and_weights(None, batch)
        return -(token_losses * weights).sum(-1)

    def predict_batch(self, params: Any, batch: Batch, rng: jax.Array | None = None) -> jax.Array:
        """The best ids [B, T] for each row."""
        return self.predict_batch_with_aux(params, batch, decode_rng=rng)[0]

    def predict_batch_with_aux(
        self,
        params: Any,
        batch: Batch,
        decoder_params: Mapping[str, Any] | None = None,
        return_all_decodes: bool = False,
        num_decodes: int = 1,
        decode_rng: jax.Array | None = None,
        go_on: Mapping[str, Any] | None = None,
        until: int | jax.Array | None = None,
    ) -> Any:
        """Decodes a batch of inputs.

        Args:
          params: parameters of the network.
          batch: `encoder_input_tokens` [B, I]; `decoder_input_tokens` [B, T] gives the length.
          decoder_params: further arguments of `decode_fn` (`decode_rng`, `alpha`, …).
          return_all_decodes: all decodes, worst first, instead of the best.
          num_decodes: beams, or samples.
          decode_rng: key to draw with, unless `decoder_params` has one. Not in T5X.
          go_on: what a decoding that was suspended has returned; it takes the place of the inputs,
            and of `decoder_input_tokens` the shape is looked at. Not in T5X, like `until`.
          until: the place to suspend it at, where the model `suspends`; see `decoding.beam_search`.

        Returns:
          Ids [B, T] and {'scores': [B]}, or [B, N, T] and {'scores': [B, N]}. With `until` a triple
          of these, were it at its end, of what to go on with, and of the rows that are unsettled.
        """
        rows, length = batch["decoder_input_tokens"].shape
        given = {} if decode_rng is None else {"decode_rng": decode_rng}
        if go_on is None:
            steps = self.decoder_steps(params, batch["encoder_input_tokens"], length)
        else:
            weights, config = self._decoder_weights(params), self.module.config
            steps = DecoderSteps.over(go_on["read"], config, weights, length)
            given["go_on"] = go_on["state"]
        found = self.decode_fn(
            inputs=jnp.zeros((rows, length), jnp.int32),
            cache=steps.empty_cache() if go_on is None else None,
            tokens_to_logits=lambda state: steps(state.cur_token[:, 0], state.cache),
            eos_id=self.output_vocabulary.eos_id,
            num_decodes=num_decodes,
            **given | ({} if until is None else {"until": until}) | (decoder_params or {}),
        )
        decodes, scores = found if until is None else (found.decodes, found.scores)
        if not return_all_decodes:
            decodes, scores = decodes[:, -1, :], scores[:, -1]
        if until is None:
            return decodes, {"scores": scores}
        rest = {"read": steps.read, "state": found.state}
        return (decodes, {"scores": scores}), rest, found.unsettled

    @property
    def suspends(self) -> bool:
        """Whether decoding can be suspended: `predict_batch` and `decode_fn` are no others."""
        plain = type(self).predict_batch == EncoderDecoderModel.predict_batch
        arguments = inspect.signature(self.predict_batch_with_aux).parameters
        return plain and "until" in arguments and getattr(self.decode_fn, "suspends", False)

    def decoder_steps(self, params: Any, inputs_BI: jax.Array, length: int) -> DecoderSteps:
        """The decoder for these inputs, encoded, one place at a time up to `length`."""
        plain = {name: part for name, part in params.items() if name != _DECODER}
        encoded = self.module.apply(
            {"params": plain}, inputs_BI, enable_dropout=False, method="encode"
        )
        weights = self._decoder_weights(params)
        return DecoderSteps.begin(self.module.config, weights, encoded, inputs_BI, length)

    def _decoder_weights(self, params: Any) -> DecoderWeights:
        return params.get(_DECODER) or DecoderWeights.of(self.module.config, params)

    def decoding_params(self, params: Any) -> dict[str, Any]:
        """Parameters laid out for `predict_batch`, which takes both: quicker where it is called
        again and again."""
        kept = {name: part for name, part in params.items() if name != "decoder"}
        return kept | {_DECODER: DecoderWeights.of(self.module.config, params)}

    @property
    def FEATURE_CONVERTER_CLS(self) -> Callable[..., Any]:
        """The seqio converter of this model's features (upstream's name)."""
        if self.feature_converter_cls is not None:
            return self.feature_converter_cls
        import seqio  # the arithmetic above runs where seqio is not installed

        return seqio.EncDecFeatureConverter
