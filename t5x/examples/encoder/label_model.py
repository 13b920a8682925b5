"""An encoder with a head that labels texts or words, and its loss.

    MODEL = @label_model.LabelModel()          # t5x/examples/encoder/labels.gin

A batch is that of `t5x.examples.encoder.model`, but `encoder_target_tokens` are labels, from 1, at
the places that `encoder_loss_weights` asks for: the first token of a text, or of each word.

Shapes: B batch, L length, C labels.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from t5x import losses, metrics
from t5x.array_types import Batch, Params
from t5x.examples.encoder import heads
from t5x.examples.encoder.model import FineTunedModel, Normalizers, refuse_intermediates
from t5x.examples.encoder.network import ModernBertConfig, segments_of


@dataclasses.dataclass(eq=False, repr=False)
class LabelModel(FineTunedModel):
    """The network, optimizer and normalization of `pretrained`, with a head in its head's place.

    `output_vocabulary` has `labels`, their names, and `of_words`, whether words have them; see
    `tasks.labels`. `pooling` is that of ModernBERT's texts, "cls" or "mean".
    """

    pooling: str = "cls"

    def __post_init__(self):
        config = self.module.config
        if self.pooling not in heads.POOLINGS:
            raise ValueError(
                f"LabelModel.pooling is {self.pooling!r}; set it to 'cls', the first token, or "
                "'mean', the mean of all."
            )
        if self.pooling == "mean" and not isinstance(config, ModernBertConfig):
            raise ValueError(
                "LabelModel.pooling is 'mean', which transformers has for texts of a ModernBERT "
                "only; set it to 'cls'."
            )

    @property
    def head(self) -> heads.LabelHead:
        """The head as a Flax module."""
        names = self.output_vocabulary
        return heads.LabelHead(self.module.config, len(names.labels), names.of_words, self.pooling)

    def get_initial_variables(self, rng: jax.Array, input_shapes: Any, input_types: Any = None):
        """Return the variables of network and head in Flax's boxes; lengths do not matter."""
        rows, _ = input_shapes["encoder_input_tokens"]
        ids = jnp.ones((rows, 1), jnp.int32)
        body_rng, head_rng = jax.random.split(rng)
        body = super().get_initial_variables(body_rng, input_shapes)
        encoded = jnp.zeros((rows, 1, self.module.config.emb_dim))
        return {"params": body["params"] | self.head.init(head_rng, encoded, ids)["params"]}

    def logits(self, params: Params, batch: Batch, dropout_rng: jax.Array | None = None):
        """Return float32 logits [B, L, C] of every place, with dropout if there is a key."""
        if getattr(self.module.config, "type_vocab_size", 1) < 2:
            batch = {name: x for name, x in batch.items() if name != "encoder_type_ids"}
        encoded = self.pretrained.encode(params, batch, dropout_rng)
        segments = segments_of(batch["encoder_input_tokens"], batch.get("encoder_segment_ids"))
        # Another key than that of the network's layers.
        key = None if dropout_rng is None else {"dropout": jax.random.fold_in(dropout_rng, 1)}
        return self.head.apply({"params": params}, encoded, segments, key is not None, rngs=key)

    def loss_fn(
        self,
        params: Params,
        batch: Batch,
        dropout_rng: jax.Array | None,
        normalizers: Normalizers | None = None,
    ) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]:
        """Return the normalized loss, and (sum of weights, sums of `metrics`).

        `normalizers` are those of the batch that this one is a part of.
        """
        logits = self.logits(params, batch, dropout_rng)
        factor, _ = self.normalizers(batch) if normalizers is None else normalizers
        _, weights = self.pretrained.factor_and_weights(batch)
        labels = jnp.maximum(batch["encoder_target_tokens"] - 1, 0)
        z_loss = self.pretrained.z_loss
        label_losses, z_losses = losses.cross_entropy(logits, labels, z_loss)
        loss = (label_losses * weights).sum()
        sums = metrics.token_sums(logits, labels, label_losses, z_losses, weights, factor)
        sums |= metrics.row_sums(batch)
        return loss if factor is None else loss / factor, (weights.sum(), sums)

    def normalizers(self, batch: Batch) -> Normalizers:
        """Return what the loss is divided by (None: 1)."""
        return Normalizers(self.pretrained.factor_and_weights(batch)[0], None)

    def score_batch(self, params: Params, batch: Batch, return_intermediates: bool = False):
        """Return the log-likelihood [B] of each row's labels."""
        refuse_intermediates(return_intermediates)
        labels = jnp.maximum(batch["encoder_target_tokens"] - 1, 0)
        label_losses, _ = losses.cross_entropy(self.logits(params, batch), labels)
        return -(label_losses * (batch["encoder_loss_weights"] > 0)).sum(-1)

    def predict_batch(self, params: Params, batch: Batch, rng: jax.Array | None = None):
        """Return the best labels of each row, from 1, in the order of their places, int32 [B, L].

        The rest of a row is 0.
        """
        return self.predict_batch_with_aux(params, batch)[0]

    def predict_batch_with_aux(self, params: Params, batch: Batch, rng: jax.Array | None = None):
        """Return what `predict_batch` does, and {'scores': [B]}, their log-probabilities' sum."""
        log_probs = jax.nn.log_softmax(self.logits(params, batch))
        asked_BL = batch["encoder_loss_weights"] > 0
        best_BL = jnp.where(asked_BL, log_probs.argmax(-1).astype(jnp.int32) + 1, 0)
        scores = jnp.where(asked_BL, log_probs.max(-1), 0.0).sum(-1)
        places_BL = jnp.argsort(~asked_BL, axis=1, stable=True)
        return jnp.take_along_axis(best_BL, places_BL, axis=1), {"scores": scores}
