"""Count the FLOP of a model's train step, and know the peak FLOP/s of devices, for the MFU.

Counted: products with parameters, attention's two products, logits; the backward pass twice as much
as the forward pass. Not counted: lookups, norms, softmax, rematerialization.
"""

from collections.abc import Mapping
from typing import Any

import jax

# Dense bfloat16 FLOP/s of one JAX device, by the start of its name (makers' data sheets). A device
# of a TPU v2 or v3 is half a chip.
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
    """Return the FLOP of one train step on `batch` sequences; `config` is a `network.T5Config`.

    Attention counts all keys, masked or not, as published figures do.
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
    """Return the FLOP/s of a device by JAX's name for it; None for an unknown one."""
    known = [name for name in _PEAKS if device_kind.startswith(name)]
    return _PEAKS[max(known, key=len)] if known else None


def peak_share(
    model: Any, batch: Mapping[str, Any] | None, devices: int, device_kind: str
) -> float | None:
    """Return the model FLOP utilization at one step a second, to be multiplied by steps a second.

    `batch` has the shapes of a global batch, `device_kind` is JAX's name for the devices. Return
    None where the devices' peak or the model's sizes are unknown.
    """
    config = getattr(getattr(model, "module", None), "config", None)
    peak = peak_flops(device_kind)
    if peak is None or not hasattr(config, "num_encoder_layers") or not batch:
        return None
    rows, inputs = batch["encoder_input_tokens"].shape
    targets = batch["decoder_target_tokens"].shape[1]
    return step_flops(config, rows, inputs, targets) / (devices * peak)


def peak_bytes() -> int | None:
    """Return the most memory that a device of this host has held, None where unknown."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    return max((s["peak_bytes_in_use"] for s in stats if "peak_bytes_in_use" in s), default=None)
