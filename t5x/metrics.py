"""Metrics: sums on the device, names and divisions on the host.

A step returns a dict of float32 scalars that add up over microbatches and steps (`step_sums`);
`summarize` turns the sum of many steps into upstream T5X's metric names.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

Sums = Mapping[str, jax.Array]


def step_sums(
    logits_BTV: jax.Array,
    batch: Mapping[str, jax.Array],
    losses_BT: jax.Array,
    z_losses_BT: jax.Array,
    weights_BT: jax.Array,
) -> dict[str, jax.Array]:
    """Return sums over one batch; losses are natural logarithms (nats)."""
    targets = batch["decoder_target_tokens"]
    real = (weights_BT > 0).astype(jnp.float32)
    # Correct if the target has the highest score. The loss needs both scores anyway, while an
    # argmax would read all logits once more.
    chosen = jnp.take_along_axis(logits_BTV, targets[..., None], axis=-1)[..., 0]
    correct = (chosen >= logits_BTV.max(-1)) * real
    count = lambda x: jnp.asarray(x, jnp.float32)
    sums = {
        "cross_ent_loss": ((losses_BT - z_losses_BT) * real).sum(),
        "z_loss": (z_losses_BT * real).sum(),
        "correct": correct.sum(),
        "target_tokens": real.sum(),
        "target_positions": count(targets.size),
        "sequences": count(targets.shape[0]),
    }
    if (inputs := batch.get("encoder_input_tokens")) is not None:
        sums["input_tokens"] = count((inputs > 0).sum())
        sums["input_positions"] = count(inputs.size)
    for side in ("encoder", "decoder"):
        # Packed examples are numbered from 1 in each row.
        if (segments := batch.get(f"{side}_segment_ids")) is not None:
            sums[f"{side}_examples"] = count(segments.max(-1).sum())
    return sums


def add(a: Sums | None, b: Sums) -> Sums:
    """Return the sum of two dicts of sums."""
    return b if a is None else jax.tree.map(jnp.add, a, b)


def summarize(sums: Mapping[str, float], seconds: float | None, devices: int) -> dict[str, float]:
    """Return upstream's metrics from the sums of `sums['steps']` steps.

    Args:
      sums: of `step_sums`, added up, with `steps`, `loss` (as optimized) and, in training,
        `learning_rate` added up too.
      seconds: their duration, None for evaluations.
      devices: number of devices.

    Returns:
      Floats; losses in nats, `timing/…` per second.
    """
    sums = {k: float(np.asarray(v)) for k, v in sums.items()}
    steps, tokens = max(sums["steps"], 1.0), max(sums["target_tokens"], 1.0)
    loss_sum = sums["cross_ent_loss"] + sums["z_loss"]
    out = {
        "accuracy": sums["correct"] / tokens,
        "loss": sums["loss"] / steps,
        "loss_per_nonpadding_target_token": loss_sum / tokens,
        "loss_per_all_target_tokens": loss_sum / sums["target_positions"],
        "cross_ent_loss": sums["cross_ent_loss"] / steps,
        "cross_ent_loss_per_all_target_tokens": sums["cross_ent_loss"] / sums["target_positions"],
        "z_loss": sums["z_loss"] / steps,
        "z_loss_per_all_target_tokens": sums["z_loss"] / sums["target_positions"],
        "non_padding_fraction/loss_weights": sums["target_tokens"] / sums["target_positions"],
    }
    if "input_positions" in sums:
        fraction = sums["input_tokens"] / sums["input_positions"]
        out["non_padding_fraction/encoder"] = fraction
    for side in ("encoder", "decoder"):
        if f"{side}_examples" in sums:
            out[f"effective_batch_size/{side}"] = sums[f"{side}_examples"] / steps
    if "learning_rate" in sums:
        out["learning_rate"] = sums["learning_rate"] / steps
        out["gradient_norm"] = sums["gradient_norm"] / steps
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
