"""An encoder that gives texts vectors, and its loss: which text of the batch belongs to which?

    MODEL = @embedding_model.EmbeddingModel()          # t5x/examples/encoder/embeddings.gin

A row holds one text or two similar ones, end to end. A batch is that of
`t5x.examples.encoder.model`, but `encoder_target_tokens` are 1 in the first text and 2 in the
second, and `encoder_loss_weights` are 1 at the first token of the second. A vector is the mean of a
text's encoded tokens, [CLS] and [SEP] included.

Shapes: B batch, L length, D emb_dim.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from t5x import losses, metrics
from t5x.array_types import Batch, Params
from t5x.examples.encoder.model import FineTunedModel, Normalizers, refuse_intermediates
from t5x.examples.encoder.network import positions_of, segments_of


@dataclasses.dataclass(eq=False, repr=False)
class EmbeddingModel(FineTunedModel):
    """The network and the optimizer of `pretrained`, without its head.

    The loss is the cross entropy of the cosines of a first text and all second texts of the batch,
    times `scale` (Henderson et al. 2017). Of a batch in parts, each part has its own texts only.
    """

    scale: float = 20.0

    needs_single_rows = True  # packed rows would have several pairs

    def vectors(
        self, params: Params, batch: Batch, dropout_rng: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Return the vectors of first and of second texts, float32 [B, D]; 0 without a text."""
        ids = batch["encoder_input_tokens"]
        which_BL = batch["encoder_target_tokens"]
        which_BL *= segments_of(ids, batch.get("encoder_segment_ids")) > 0
        first_B1 = (which_BL == 1).sum(1, keepdims=True)
        positions_BL = positions_of(ids, None) - (which_BL == 2) * first_B1
        apart = {"encoder_segment_ids": which_BL, "encoder_positions": positions_BL}
        given = {"encoder_input_tokens": ids} | apart
        encoded_BLD = self.pretrained.encode(params, given, dropout_rng).astype(jnp.float32)

        def mean(text: int) -> jax.Array:
            kept_BL = (which_BL == text).astype(jnp.float32)
            total_BD = jnp.einsum("BL,BLD->BD", kept_BL, encoded_BLD)
            return total_BD / jnp.maximum(kept_BL.sum(1, keepdims=True), 1.0)

        return mean(1), mean(2)

    def loss_fn(
        self,
        params: Params,
        batch: Batch,
        dropout_rng: jax.Array | None,
        normalizers: Normalizers | None = None,
    ) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]:
        """Return the mean loss of the pairs, and (their number, sums of `metrics`).

        `normalizers` are those of the batch that this one is a part of.
        """
        first_BD, second_BD = (unit(x) for x in self.vectors(params, batch, dropout_rng))
        weights_B1 = _weights(batch)
        cosines_BB = jnp.einsum("BD,CD->BC", first_BD, second_BD)
        there_B = weights_B1[:, 0] > 0
        logits_B1B = jnp.where(there_B, self.scale * cosines_BB, -1e9)[:, None]
        own_B1 = jnp.arange(len(there_B))[:, None]
        pair_losses, z_losses = losses.cross_entropy(logits_B1B, own_B1)
        factor: Any = (self.normalizers(batch) if normalizers is None else normalizers).tokens
        loss = (pair_losses * weights_B1).sum() / factor
        sums = metrics.token_sums(logits_B1B, own_B1, pair_losses, z_losses, weights_B1, factor)
        return loss, (weights_B1.sum(), sums | metrics.row_sums(batch))

    def normalizers(self, batch: Batch) -> Normalizers:
        """Return the number of pairs, at least 1."""
        return Normalizers(jnp.maximum(_weights(batch).sum(), 1.0), None)

    def score_batch(self, params: Params, batch: Batch, return_intermediates: bool = False):
        """Return the cosine [B] of each row's texts."""
        refuse_intermediates(return_intermediates)
        first_BD, second_BD = self.vectors(params, batch)
        return (unit(first_BD) * unit(second_BD)).sum(-1)

    def predict_batch(self, params: Params, batch: Batch, rng: jax.Array | None = None):
        """Return the vectors of first texts, float32 [B, D]."""
        return self.vectors(params, batch)[0]

    def predict_batch_with_aux(self, params: Params, batch: Batch, rng: jax.Array | None = None):
        """Return the vectors of first texts, and {'scores': [B]}, the cosines with the second."""
        return self.predict_batch(params, batch), {"scores": self.score_batch(params, batch)}


def unit(x: jax.Array) -> jax.Array:
    """Return vectors [..., D] of length 1; those of 0 stay."""
    return x * jax.lax.rsqrt(jnp.maximum(jnp.square(x).sum(-1, keepdims=True), 1e-24))


def _weights(batch: Batch) -> jax.Array:
    """Return which rows have two texts, float32 [B, 1]."""
    return (batch["encoder_loss_weights"] > 0).any(1, keepdims=True).astype(jnp.float32)
