"""Cross entropy with z-loss and label smoothing, and its normalization.

Shapes: B batch, T target length, V vocab.
"""

import enum
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from common.errors import UserError
from t5x.kernels.select import log_normalizer

ONCE = "once"  # scope of a loop that usually runs once; preflight/aot/hlo.py counts it so


class SpecialLossNormalizingFactor(enum.Enum):
    """Normalizers that are computed from the batch."""

    NUM_REAL_TARGET_TOKENS = 1
    NUM_TOTAL_TARGET_TOKENS = 2
    AVERAGE_PER_SEQUENCE = 3


def cross_entropy(
    logits_BTV: jax.Array, targets_BT: jax.Array, z_loss: float = 0.0, label_smoothing: float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """Return cross entropy with z-loss of int32 targets, and the z-loss alone, float32 [B, T].

    `z_loss` is the weight of log(Z)², which keeps the logits' normalizer near 1 (Mesh TensorFlow).
    `label_smoothing` is the share of probability spread evenly over the other ids. The smoothed
    target's entropy is subtracted, so that a perfect model has loss 0. A target beyond the
    vocabulary has loss NaN.
    """
    logits_BTV = logits_BTV.astype(jnp.float32)
    log_z = log_normalizer(logits_BTV)
    # Not a lookup, whose gradient is a scatter, one more pass over all logits.
    is_target = jnp.arange(logits_BTV.shape[-1]) == targets_BT[..., None]
    chosen = jnp.where(is_target, logits_BTV, 0.0).sum(-1)
    # An id beyond the logits must not pass for one of probability 1 / Z.
    loss = log_z - jnp.where(targets_BT < logits_BTV.shape[-1], chosen, jnp.nan)
    if label_smoothing:
        vocab = logits_BTV.shape[-1]
        confidence, share = 1.0 - label_smoothing, label_smoothing / (vocab - 1)
        spread = vocab * log_z - logits_BTV.sum(-1)  # cross entropy against every id once
        entropy = confidence * math.log(confidence) + (vocab - 1) * share * math.log(share + 1e-20)
        loss = (confidence - share) * loss + share * spread + entropy
    z = z_loss * jnp.square(log_z)
    return loss + z, z


def normalizing_factor(factor: Any) -> float | SpecialLossNormalizingFactor | None:
    """Return the normalizing factor that a gin file sets: None, a number, or a special one by name.

    Raise UserError for anything else.
    """
    special = SpecialLossNormalizingFactor.__members__
    if isinstance(factor, str) and (name := factor.rsplit(".", 1)[-1].upper()) in special:
        return special[name]
    if factor is None or isinstance(factor, SpecialLossNormalizingFactor):
        return factor
    if isinstance(factor, int | float) and 0 < factor < math.inf:
        return factor
    raise UserError(
        "EncoderDecoderModel.loss_normalizing_factor",
        factor,
        to_set=f"set it to None, a number above 0 or one of {[*special]}",
    )


def normalizing_factor_and_weights(
    factor: float | int | str | SpecialLossNormalizingFactor | None, batch: Mapping[str, jax.Array]
) -> tuple[jax.Array | float | None, jax.Array]:
    """Return the divisor of the summed loss (None: 1), and the weights of targets, float32 [B, T].

    Args:
      factor: None (keep the sum), a number, or a `SpecialLossNormalizingFactor` or its name.
      batch: `decoder_target_tokens` [B, T], and if they exist `decoder_loss_weights` and
        `decoder_segment_ids`. Without weights a special factor leaves padding out and any other
        counts it, as upstream's do.

    Raises:
      UserError: an unknown factor.
    """
    targets = batch["decoder_target_tokens"]
    weights = batch.get("decoder_loss_weights")
    factor = normalizing_factor(factor)
    if not isinstance(factor, SpecialLossNormalizingFactor):
        weights = jnp.ones_like(targets) if weights is None else weights
        return factor, weights.astype(jnp.float32)
    weights = targets > 0 if weights is None else weights
    weights = weights.astype(jnp.float32)
    match factor:
        case SpecialLossNormalizingFactor.NUM_REAL_TARGET_TOKENS:
            return _divisor(weights.sum()), weights
        case SpecialLossNormalizingFactor.NUM_TOTAL_TARGET_TOKENS:
            return float(math.prod(targets.shape)), weights
    # Average per sequence: every sequence's weights add up to 1.
    segments = batch.get("decoder_segment_ids")
    if segments is None:
        per_sequence = weights.sum(-1, keepdims=True)
    else:
        same = (segments[:, :, None] == segments[:, None, :]) & (segments > 0)[:, None]
        per_sequence = jnp.einsum("BTS,BS->BT", same.astype(jnp.float32), weights)
    weights = jnp.where(per_sequence > 0, weights / jnp.maximum(per_sequence, 1e-6), 0.0)
    return _divisor(weights.sum()), weights


def _divisor(total: jax.Array) -> jax.Array:
    """Return the sum of weights, or 1 for 0: a batch or a part without weights has no loss."""
    return jnp.where(total > 0, total, 1.0)
