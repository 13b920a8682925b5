"""Metrics: sums on the device, names and divisions on the host.

A step returns a dict of float32 scalars that add up over microbatches and steps (`step_sums`);
`summarize` turns the sum of many steps into upstream T5X's metric names.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Upstream's loss_per_nonpadding_target_token divides what LOSS_NORMALIZING_FACTOR has already
# divided, so it cannot compare runs with different factors.
UNNORMALIZED_LOSS = "unnormalized_loss_per_target_token"


def step_sums(
    logits_BTV: jax.Array,
    batch: Mapping[str, jax.Array],
    losses_BT: jax.Array,
    z_losses_BT: jax.Array,
    weights_BT: jax.Array,
    factor: jax.Array | float | None = None,
) -> dict[str, jax.Array]:
    """Return sums over one batch; losses are natural logarithms (nats).

    `cross_ent_loss` and `correct` count every target with a weight once. `z_loss` is weighted and
    divided by the loss's normalizing factor, as the optimized loss is.
    """
    targets = batch["decoder_target_tokens"]
    sums = token_sums(logits_BTV, targets, losses_BT, z_losses_BT, weights_BT, factor)
    return sums | row_sums(batch)


def token_sums(
    logits_BTV: jax.Array,
    targets_BT: jax.Array,
    losses_BT: jax.Array,
    z_losses_BT: jax.Array,
    weights_BT: jax.Array,
    factor: jax.Array | float | None = None,
) -> dict[str, jax.Array]:
    """Return the part of `step_sums` that is about targets with a weight."""
    real = (weights_BT > 0).astype(jnp.float32)
    correct = hits(logits_BTV, targets_BT) * real
    z_loss = (z_losses_BT * weights_BT).sum()
    return {
        "cross_ent_loss": ((losses_BT - z_losses_BT) * real).sum(),
        "unnormalized_z_loss": (z_losses_BT * real).sum(),
        "z_loss": z_loss if factor is None else z_loss / factor,
        "correct": correct.sum(),
        "weights": weights_BT.sum(),
        "target_tokens": real.sum(),
    }


def hits(logits_BTV: jax.Array, targets_BT: jax.Array) -> jax.Array:
    """Return which targets have the highest logit, bool [B, T]."""
    # The loss needs both scores anyway, while an argmax would read all logits once more.
    chosen = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)[..., 0]
    return chosen >= logits_BTV.max(-1)


def row_sums(batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Return the part of `step_sums` that counts rows, positions and examples.

    In an encoder alone, inputs and targets have the same positions, which count once.
    """
    count = lambda x: jnp.asarray(x, jnp.float32)
    alone = "decoder_target_tokens" not in batch
    targets = batch["encoder_target_tokens" if alone else "decoder_target_tokens"]
    sums = {"target_positions": count(targets.size), "sequences": count(targets.shape[0])}
    if not alone and (inputs := batch.get("encoder_input_tokens")) is not None:
        sums["input_positions"] = count(inputs.size)
    for side, ids in segments(batch).items():
        starts = (ids != jnp.pad(ids[:, :-1], ((0, 0), (1, 0)))) & (ids != 0)
        sums[f"examples/{side}"] = count(starts.sum())
        sums[f"non_padding/{side}"] = count((ids != 0).sum())
        sums[f"positions/{side}"] = count(ids.size)
    return sums


def segments(batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Return int32 [B, L] that number the examples of each row, 0 for padding, by upstream's names.

    Packed batches name the sides, other batches the features.
    """
    suffix = "_segment_ids"
    packed = {k.removesuffix(suffix): ids for k, ids in batch.items() if k.endswith(suffix)}
    features = ("encoder_input_tokens", "decoder_target_tokens")
    return packed or {k: (batch[k] != 0).astype(jnp.int32) for k in features if k in batch}


def unnormalized_loss(sums: Mapping[str, Any]) -> Any:
    """Return cross entropy and z-loss in nats per target with a weight, for any normalization."""
    total, tokens = sums["cross_ent_loss"] + sums["unnormalized_z_loss"], sums["target_tokens"]
    return total / (tokens + (tokens == 0))  # jnp.maximum would compile on the host


def total(parts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Add up one or more dicts of sums key by key; their values are on the host."""
    return {name: sum(float(part[name]) for part in parts) for name in parts[0]}


def summarize(sums: Mapping[str, float], seconds: float | None, devices: int) -> dict[str, float]:
    """Return upstream's metrics and UNNORMALIZED_LOSS over `sums['steps']` steps, losses in nats.

    `sums` are added `step_sums`, with `steps`, `loss` (as optimized) and, in training,
    `gradient_norm` and `learning_rate` added up too. `seconds` is their duration, None for
    evaluations; `timing/…` are per second.
    """
    sums = {k: float(np.asarray(v)) for k, v in sums.items()}
    steps, weights = max(sums["steps"], 1.0), sums["weights"] or 1.0
    positions, cross_entropy = sums["target_positions"], sums["loss"] - sums["z_loss"]
    out = {
        "accuracy": sums["correct"] / max(sums["target_tokens"], 1.0),
        "loss": sums["loss"] / steps,
        "loss_per_nonpadding_target_token": sums["loss"] / weights,
        "loss_per_all_target_tokens": sums["loss"] / positions,
        "cross_ent_loss": cross_entropy / steps,
        "cross_ent_loss_per_all_target_tokens": cross_entropy / positions,
        "z_loss": sums["z_loss"] / steps,
        "z_loss_per_all_target_tokens": sums["z_loss"] / positions,
        "non_padding_fraction/loss_weights": sums["weights"] / positions,
        UNNORMALIZED_LOSS: float(unnormalized_loss(sums)),
    }
    sides = [name.removeprefix("examples/") for name in sums if name.startswith("examples/")]
    for side in sides:
        out[f"effective_batch_size/{side}"] = sums[f"examples/{side}"] / steps
        out[f"non_padding_fraction/{side}"] = (
            sums[f"non_padding/{side}"] / sums[f"positions/{side}"]
        )
    if sides:
        filled, all_ = (sum(sums[f"{k}/{s}"] for s in sides) for k in ("non_padding", "positions"))
        out["non_padding_fraction/overall"] = filled / all_
    if "masked_tokens" in sums:
        nats = sums["cross_ent_loss"] / max(sums["masked_tokens"], 1.0)
        out["pseudo_perplexity"] = math.exp(min(nats, 700.0))
    if "masked_words" in sums:
        out["word_accuracy"] = sums["words_correct"] / max(sums["masked_words"], 1.0)
    if sums.get("next_sentences"):
        out["next_sentence_accuracy"] = sums["next_sentences_correct"] / sums["next_sentences"]
        out["next_sentence_loss"] = sums["next_sentence_loss"] / sums["next_sentences"]
    for name in ("learning_rate", "gradient_norm"):
        if name in sums:
            out[name] = sums[name] / steps
    if "skipped" in sums:
        out["skipped_steps"] = sums["skipped"]
    if seconds:
        positions = sums["target_positions"] + sums.get("input_positions", 0.0)
        rates = {
            "seqs_per_second": sums["sequences"],
            # Padding counts too, as in upstream's numbers.
            "target_tokens_per_second": sums["target_positions"],
            "tokens_per_second": positions,
        }
        out["timing/seconds"] = seconds
        out["timing/seqs"] = sums["sequences"]
        out["timing/steps_per_second"] = steps / seconds
        for name, count in rates.items():
            out[f"timing/{name}"] = count / seconds
            out[f"timing/{name}_per_core"] = count / seconds / devices
    return out
