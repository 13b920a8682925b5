"""The work that a model's arithmetic needs, whatever a compiler makes of it, and who does it.

  step = step_flops(config, batch=128, inputs=512, targets=114)
  mfu = step / seconds / (devices * peak_flops("TPU v4"))

Counted: products with parameters, attention's two products, logits; backward twice as much as
forward. Not counted: lookups, norms, softmax, what is computed again to save memory.
"""

from collections.abc import Mapping
from typing import Any

import jax

# Bfloat16 FLOP a second of one JAX device, dense, by what its name begins with (makers' data
# sheets). The devices of a TPU v2 or v3 are half a chip.
_PEAKS = {
    "TPU v2": 22.5e12,
    "TPU v3": 61.5e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,  # v5p
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
    "NVIDIA A100": 312e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 80GB": 989e12,
    "NVIDIA H200": 989e12,
}


def step_flops(config: Any, batch: int, inputs: int, targets: int) -> float:
    """FLOP of one train step of a T5 (fields of `network.T5Config`) on `batch` sequences.

    Attention counts whole rows of keys, masked or not, as published figures do.
    """
    c = config
    width = c.num_heads * c.head_dim
    mlp = c.emb_dim * c.mlp_dim * (len(c.mlp_activations) + 1)
    scores = lambda queries, keys: 2 * queries * keys * width
    encoder = inputs * (4 * c.emb_dim * width + mlp) + scores(inputs, inputs)
    decoder = targets * (6 * c.emb_dim * width + mlp) + inputs * 2 * c.emb_dim * width
    decoder += scores(targets, targets) + scores(targets, inputs)
    logits = targets * c.emb_dim * c.vocab_size
    forward = c.num_encoder_layers * encoder + c.num_decoder_layers * decoder + logits
    return 3.0 * 2.0 * batch * forward


def peak_flops(device_kind: str) -> float | None:
    """FLOP a second of a device that JAX calls so; None for one that is not in the table."""
    known = [name for name in _PEAKS if device_kind.startswith(name)]
    return _PEAKS[max(known, key=len)] if known else None


def peak_share(
    model: Any, batch: Mapping[str, Any] | None, devices: int, device_kind: str
) -> float | None:
    """Model FLOP utilization at one step a second; times steps a second it is the run's.

    Args:
      model: see `models.EncoderDecoderModel`.
      batch: shapes of a global batch.
      devices: how many share the work.
      device_kind: what JAX calls them.

    Returns:
      None where the devices' peak or the model's sizes are not known: no number is better than
      a wrong one.
    """
    config = getattr(getattr(model, "module", None), "config", None)
    peak = peak_flops(device_kind)
    if peak is None or not hasattr(config, "num_encoder_layers") or not batch:
        return None
    rows, inputs = batch["encoder_input_tokens"].shape
    targets = batch["decoder_target_tokens"].shape[1]
    return step_flops(config, rows, inputs, targets) / (devices * peak)


def peak_bytes() -> int | None:
    """The most memory that a device of this host has held, None where it does not tell."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    return max((s["peak_bytes_in_use"] for s in stats if "peak_bytes_in_use" in s), default=None)
