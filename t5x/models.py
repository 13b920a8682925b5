"""A model: a network with its loss, scores and decoding, under upstream's names.

A batch holds `encoder_input_tokens` [B, I], `decoder_input_tokens` and `decoder_target_tokens`
[B, T], and where they are known `decoder_loss_weights`, `{encoder,decoder}_segment_ids` and
`{encoder,decoder}_positions`.
B batch, I input length, T target length, V vocab, N decodes.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from common.errors import UserError
from t5x import decoding, losses, metrics
from t5x.array_types import Batch, Params
from t5x.examples.t5.incremental_decoder import IncrementalDecoder, decoding_params
from t5x.optimizers import OptimizerDef


@dataclasses.dataclass(frozen=True)
class DecoderParams:
    """Defaults of `EncoderDecoderModel.predict_batch_with_aux`."""

    return_all_decodes: bool = False
    num_decodes: int = 1


@dataclasses.dataclass(eq=False, repr=False)
class EncoderDecoderModel:
    """An encoder-decoder network trained on cross entropy."""

    module: Any  # `network.Transformer` or a Flax module with its methods
    input_vocabulary: Any  # a seqio.Vocabulary; only checked, never called
    output_vocabulary: Any  # a seqio.Vocabulary; gives the end-of-sequence id
    optimizer_def: OptimizerDef
    decode_fn: decoding.DecodeFn = decoding.beam_search  # or `decoding.temperature_sample`
    feature_converter_cls: Callable[..., Any] | None = None  # `EncDecFeatureConverter` of seqio
    label_smoothing: float = 0.0  # see `losses.cross_entropy`
    z_loss: float = 0.0  # see `losses.cross_entropy`
    loss_normalizing_factor: Any = None  # see `losses.normalizing_factor_and_weights`
    default_decoder_params: DecoderParams | None = None  # None: the best of one decode

    def __post_init__(self):
        decoding.check_decode_fn(self.decode_fn)
        losses.normalizing_factor(self.loss_normalizing_factor)

    def get_initial_variables(self, rng: jax.Array, input_shapes: Mapping, input_types=None):
        """Return the network's variables in Flax's boxes; lengths do not matter."""
        names = ("encoder_input_tokens", "decoder_input_tokens")
        inputs, targets = (jnp.ones(input_shapes[name], jnp.int32) for name in names)
        positions = self._positions({"encoder_positions": inputs, "decoder_positions": targets})
        return self.module.init(rng, inputs, targets, targets, **positions, enable_dropout=False)

    def _positions(self, batch: Batch) -> dict[str, jax.Array | None]:
        """Return the positions of a batch that the signature of the network has."""
        names = inspect.signature(self.module.__call__).parameters
        sides = ("encoder_positions", "decoder_positions")
        return {name: batch.get(name) for name in sides if name in names}

    def logits(self, params: Any, batch: Batch, dropout_rng: jax.Array | None = None) -> jax.Array:
        """Return float32 logits [B, T, V], with dropout if there is a key."""
        return self.module.apply(
            {"params": params},
            batch["encoder_input_tokens"],
            batch["decoder_input_tokens"],
            batch["decoder_target_tokens"],
            encoder_segment_ids=batch.get("encoder_segment_ids"),
            decoder_segment_ids=batch.get("decoder_segment_ids"),
            **self._positions(batch),
            enable_dropout=dropout_rng is not None,
            rngs=None if dropout_rng is None else {"dropout": dropout_rng},
        )

    def loss_fn(
        self, params: Any, batch: Batch, dropout_rng: jax.Array | None
    ) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]:
        """Return the normalized loss, and (sum of weights, sums of `metrics.step_sums`)."""
        logits = self.logits(params, batch, dropout_rng)
        factor, weights = losses.normalizing_factor_and_weights(self.loss_normalizing_factor, batch)
        token_losses, z_losses = losses.cross_entropy(
            logits, batch["decoder_target_tokens"], self.z_loss, self.label_smoothing
        )
        loss = (token_losses * weights).sum()
        if factor is not None:
            loss = loss / factor
        sums = metrics.step_sums(logits, batch, token_losses, z_losses, weights, factor)
        return loss, (weights.sum(), sums)

    def eval_fn(self, params: Any, batch: Batch, dropout_rng: None = None):
        """Return `loss_fn` without dropout; subclasses may evaluate something else."""
        return self.loss_fn(params, batch, None)

    def score_batch(self, params: Any, batch: Batch, return_intermediates: bool = False):
        """Return the log-likelihood [B] of each row's targets; padding does not count."""
        if return_intermediates:
            raise NotImplementedError(
                "score_batch(return_intermediates=True) is not supported; set it to False."
            )
        logits = self.logits(params, batch)
        targets = batch["decoder_target_tokens"]
        token_losses, _ = losses.cross_entropy(logits, targets)
        weights = batch.get("decoder_loss_weights", targets > 0)
        return -(token_losses * weights).sum(-1)

    def predict_batch(self, params: Any, batch: Batch, rng: jax.Array | None = None) -> jax.Array:
        """Return the best ids [B, T] for each row."""
        return self.predict_batch_with_aux(params, batch, rng)[0]

    def predict_batch_with_aux(
        self,
        params: Any,
        batch: Batch,
        rng: jax.Array | None = None,
        decoder_params: Mapping[str, Any] | None = None,
        return_all_decodes: bool | None = None,
        num_decodes: int | None = None,
        prompt_with_targets: bool = False,
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Decode a batch of inputs.

        Args:
          params: parameters of the network.
          batch: `encoder_input_tokens` [B, I]; `decoder_input_tokens` [B, T] gives the length.
          rng: key to sample with, if `decoder_params` has no `decode_rng`.
          decoder_params: further arguments of `decode_fn` (`decode_rng`, `alpha`, …).
          return_all_decodes: return all decodes, worst first, instead of the best; None for
            `default_decoder_params`.
          num_decodes: beams, or samples; None for `default_decoder_params`.
          prompt_with_targets: begin each decode with the row's `decoder_input_tokens`, its
            end-of-sequence ids left out. Upstream's beam search ignores them, ours does not.

        Returns:
          Ids [B, T] and {'scores': [B]}, or [B, N, T] and {'scores': [B, N]}.
        """
        rows, length = batch["decoder_input_tokens"].shape
        defaults = self.default_decoder_params or DecoderParams()
        if return_all_decodes is None:
            return_all_decodes = defaults.return_all_decodes
        settings = dict(decoder_params or {})
        if rng is not None:
            if settings.get("decode_rng") is not None:
                raise UserError(
                    "predict_batch_with_aux",
                    why="has a rng and decoder_params['decode_rng']",
                    to_set="give it one of them",
                )
            settings["decode_rng"] = rng
        prompt = jnp.zeros((rows, length), jnp.int32)
        if prompt_with_targets:
            prompt = batch["decoder_input_tokens"]
            prompt = jnp.where(prompt == self.output_vocabulary.eos_id, 0, prompt)
        decoder = self.incremental_decoder(params, batch["encoder_input_tokens"], length)
        decodes, scores = self.decode_fn(
            inputs=prompt,
            cache=decoder.empty_cache(),
            tokens_to_logits=lambda state: decoder(state.cur_token[:, 0], state.cache),
            eos_id=self.output_vocabulary.eos_id,
            num_decodes=num_decodes or defaults.num_decodes,
            **settings,
        )
        if decodes.shape[-1] > length:
            raise UserError(
                "decode_fn",
                why=f"decodes {decodes.shape[-1]} ids, but the decoder has memory for the {length} "
                "of the targets",
                to_set=f"set max_decode_len to {length} at most, or the length of the targets to "
                "more",
            )
        if not return_all_decodes:
            decodes, scores = decodes[:, -1, :], scores[:, -1]
        return decodes, {"scores": scores}

    def incremental_decoder(
        self, params: Params, inputs_BI: jax.Array, length: int
    ) -> IncrementalDecoder:
        """Encode the inputs, and return a decoder of one position at a time up to `length`."""
        encoded_BID = self.module.apply(
            {"params": params}, inputs_BI, enable_dropout=False, method="encode"
        )
        return IncrementalDecoder.start(self.module, params, encoded_BID, inputs_BI, length)

    def decoding_params(self, params: Params) -> Params:
        """Return parameters laid out for `predict_batch`, which accepts both; for many batches."""
        return decoding_params(self.module.config, params)

    @property
    def FEATURE_CONVERTER_CLS(self) -> Callable[..., Any]:
        """The seqio converter of this model's features (upstream's name)."""
        if self.feature_converter_cls is not None:
            return self.feature_converter_cls
        import seqio  # imported here, so that the model also runs without seqio

        return seqio.EncDecFeatureConverter
