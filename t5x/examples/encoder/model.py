"""An encoder with its loss: cross entropy of masked tokens, and perhaps of the next sentence.

    MODEL = @model.MaskedLanguageModel()

A batch holds `encoder_input_tokens` int32 [B, L] with masks, `encoder_target_tokens` int32 [B, L]
without, `encoder_loss_weights` float32 [B, L], above 0 where a token is to be predicted,
`encoder_segment_ids` int32 [B, L], 0 for padding, and `encoder_positions` int32 [B, L]. BERT also
reads `encoder_type_ids` int32 [B, L] and `next_sentence_label` int32 [B, 1], of the row's first
token, or [B, L], of the first token of each example and -1 elsewhere: 0 where the second sentence
follows the first, 1 where it is random.

Shapes: B batch, L length, P places that are predicted, D emb_dim, V vocab.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from t5x import losses, metrics
from t5x.array_types import Batch, Params
from t5x.optimizers import OptimizerDef

_FEATURES = {"segment_ids": None, "positions": None, "type_ids": None}


@dataclasses.dataclass(eq=False, repr=False)
class MaskedLanguageModel:
    """An encoder trained to predict masked tokens.

    `predicted_share` is the share of a row's places that the logits are computed of at once. A
    batch in which a row has more targets is computed in several turns: slower, the same numbers.
    """

    module: Any  # `network.Bert` or `network.ModernBert`
    input_vocabulary: Any  # of seqio; only checked, never called
    output_vocabulary: Any
    optimizer_def: OptimizerDef
    feature_converter_cls: Callable[..., Any] | None = None
    z_loss: float = 0.0  # see `losses.cross_entropy`
    loss_normalizing_factor: Any = "NUM_REAL_TARGET_TOKENS"  # see `losses`
    predicted_share: float = 0.25

    def __post_init__(self):
        losses.check_normalizing_factor(self.loss_normalizing_factor)

    def get_initial_variables(self, rng: jax.Array, input_shapes: Any, input_types: Any = None):
        """Return the network's variables in Flax's boxes; lengths do not matter."""
        rows, _ = input_shapes["encoder_input_tokens"]
        return self.module.init(rng, jnp.ones((rows, 1), jnp.int32), enable_dropout=False)

    def encode(
        self, params: Params, batch: Batch, dropout_rng: jax.Array | None = None
    ) -> jax.Array:
        """Return the encoded rows [B, L, D], with dropout if there is a key."""
        return self.module.apply(
            {"params": params},
            batch["encoder_input_tokens"],
            **{name: batch.get(f"encoder_{name}") for name in _FEATURES},
            enable_dropout=dropout_rng is not None,
            rngs=None if dropout_rng is None else {"dropout": dropout_rng},
            method="encode",
        )

    def logits(self, params: Params, batch: Batch, dropout_rng: jax.Array | None = None):
        """Return float32 logits [B, L, V] of every place, with dropout if there is a key."""
        encoded = self.encode(params, batch, dropout_rng)
        return self.module.apply({"params": params}, encoded, method="predict")

    def loss_fn(
        self, params: Params, batch: Batch, dropout_rng: jax.Array | None
    ) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]:
        """Return the normalized loss, and (sum of weights, sums of `metrics`).

        The loss of next sentences, where there are labels, is their mean, or their sum if nothing
        normalizes.
        """
        encoded = self.encode(params, batch, dropout_rng)
        names = ("target_tokens", "loss_weights", "segment_ids")
        known = {f"decoder_{k}": batch[f"encoder_{k}"] for k in names if f"encoder_{k}" in batch}
        factor, weights = losses.normalizing_factor_and_weights(self.loss_normalizing_factor, known)
        sums = self._token_sums(params, encoded, batch["encoder_target_tokens"], weights, factor)
        loss = sums.pop("loss") if factor is None else sums.pop("loss") / factor
        sums |= metrics.row_sums(batch) | {"masked_tokens": sums["target_tokens"]}
        if (labels := batch.get("next_sentence_label")) is not None:
            found = self._next_sentence_sums(params, encoded, labels)
            count = 1.0 if factor is None else jnp.maximum(found["next_sentences"], 1.0)
            loss, sums = loss + found["next_sentence_loss"] / count, sums | found
        return loss, (sums["weights"], sums)

    def eval_fn(self, params: Params, batch: Batch, dropout_rng: None = None):
        """Return `loss_fn` without dropout."""
        return self.loss_fn(params, batch, None)

    def _token_sums(self, params, encoded_BLD, targets_BL, weights_BL, factor):
        """Return `metrics.token_sums` of all targets with a weight, and their summed `loss`."""
        length = targets_BL.shape[1]
        room = min(length, math.ceil(self.predicted_share * length))

        def some(params, encoded_BPD, targets_BP, weights_BP):
            logits = self.module.apply({"params": params}, encoded_BPD, method="predict")
            token_losses, z_losses = losses.cross_entropy(logits, targets_BP, self.z_loss)
            sums = metrics.token_sums(
                logits, targets_BP, token_losses, z_losses, weights_BP, factor
            )
            return sums | {"loss": (token_losses * weights_BP).sum()}

        if room == length:
            return some(params, encoded_BLD, targets_BL, weights_BL)
        asked = weights_BL > 0
        places_BL = jnp.argsort(~asked, axis=1, stable=True)  # those that are asked come first
        rows = (encoded_BLD, targets_BL, weights_BL)

        def at(places_BP, rows):
            encoded, targets, weights = rows
            take = functools.partial(jnp.take_along_axis, indices=places_BP, axis=1)
            encoded = jnp.take_along_axis(encoded, places_BP[..., None], axis=1)
            return encoded, take(targets), take(weights)

        def at_once(params, rows):
            return some(params, *at(places_BL[:, :room], rows))

        def in_turns(params, rows):
            turns = -(-length // room)
            padded = jnp.pad(places_BL, ((0, 0), (0, turns * room - length)), constant_values=-1)
            parts = jnp.moveaxis(padded.reshape(-1, turns, room), 1, 0)

            @jax.checkpoint
            def one(params, rows, places_BP):
                encoded, targets, weights = at(jnp.maximum(places_BP, 0), rows)
                return some(params, encoded, targets, jnp.where(places_BP < 0, 0.0, weights))

            add = lambda total, part: (jax.tree.map(jnp.add, total, one(params, rows, part)), None)
            first = one(params, rows, parts[0])
            return jax.lax.scan(add, first, parts[1:])[0]

        return jax.lax.cond(asked.sum(1).max() <= room, at_once, in_turns, params, rows)

    def _next_sentence_sums(self, params, encoded_BLD, labels_BN):
        """Return the summed loss, the correct ones and the number of labels that are not -1."""
        first = encoded_BLD[:, : labels_BN.shape[1]]
        logits = self.module.apply({"params": params}, first, method="next_sentence")
        labels, real = jnp.maximum(labels_BN, 0), (labels_BN >= 0).astype(jnp.float32)
        label_losses, _ = losses.cross_entropy(logits, labels)
        correct = (logits.argmax(-1) == labels) * real
        return {
            "next_sentence_loss": (label_losses * real).sum(),
            "next_sentences_correct": correct.sum(),
            "next_sentences": real.sum(),
        }

    def score_batch(self, params: Params, batch: Batch, return_intermediates: bool = False):
        """Return the log-likelihood [B] of each row's masked tokens, each seen without the others.

        With one mask a row this is a term of its pseudo-log-likelihood (Salazar et al. 2020).
        """
        if return_intermediates:
            raise NotImplementedError(
                "score_batch(return_intermediates=True) is not supported; set it to False."
            )
        logits = self.logits(params, batch)
        token_losses, _ = losses.cross_entropy(logits, batch["encoder_target_tokens"])
        return -(token_losses * (batch["encoder_loss_weights"] > 0)).sum(-1)

    def predict_batch(self, params: Params, batch: Batch, rng: jax.Array | None = None):
        """Return the inputs [B, L] with the best id at each place that has a weight."""
        best = self.logits(params, batch).argmax(-1).astype(jnp.int32)
        asked = batch["encoder_loss_weights"] > 0
        return jnp.where(asked, best, batch["encoder_input_tokens"])

    @property
    def FEATURE_CONVERTER_CLS(self) -> Callable[..., Any]:
        """The converter of this model's features (upstream's name)."""
        if self.feature_converter_cls is not None:
            return self.feature_converter_cls
        # Imported here, so that the model also runs without seqio.
        from t5x.input_pipeline.encoder_rows import EncoderFeatureConverter

        return EncoderFeatureConverter
