"""The model FLOP utilization (MFU): FLOP of a train step, and the peak FLOP/s of devices.

These count: products with parameters, the two products of attention, and logits. The backward
pass counts twice the forward pass. Lookups, norms, softmax and rematerialization do not count.
"""

from collections.abc import Mapping
from typing import Any

# Dense bfloat16 FLOP/s of one JAX device by the beginning of its name, from the makers' data
# sheets. On a TPU v2, v3 or 7x a JAX device is half a chip.
_PEAKS = {
    "TPU v2": 22.5e12,
    "TPU v3": 61.5e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,  # v5p
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
    "TPU7x": 1153.5e12,
    "NVIDIA A100": 312e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 80GB": 989e12,
    "NVIDIA H200": 989e12,
}


def step_flops(config: Any, batch: int, inputs: int, targets: int) -> float:
    """Return the FLOP of one train step on `batch` sequences.

    `config` is a `T5Config` or a `T5Gemma2Config`, whose decoder attends to inputs and targets at
    once. Attention counts all keys, masked or not, as published figures do.
    """
    c = config
    is_merged = hasattr(c, "num_kv_heads")
    width = c.num_heads * c.head_dim
    queries, keys = (
        c.emb_dim * w for w in (width, c.num_kv_heads * c.head_dim if is_merged else width)
    )
    mlp = c.emb_dim * c.mlp_dim * (3 if is_merged else len(c.mlp_activations) + 1)
    scores = lambda queries, keys: 2 * queries * keys * width
    attention = 2 * queries + 2 * keys  # queries and outputs, keys and values
    encoder = inputs * (attention + mlp) + scores(inputs, inputs)
    crossing = 0 if is_merged else 2 * queries
    decoder = targets * (attention + crossing + mlp) + inputs * 2 * keys
    decoder += scores(targets, targets) + scores(targets, inputs)
    logits = targets * c.emb_dim * c.vocab_size
    forward = c.num_encoder_layers * encoder + c.num_decoder_layers * decoder + logits
    return 3.0 * 2.0 * batch * forward


def encoder_flops(config: Any, batch: int, length: int, predicted: float) -> float:
    """Return the FLOP of one train step of an encoder that predicts a share of the positions.

    `config` is a `BertConfig` or a `ModernBertConfig`. Local attention counts the keys of its
    window, global attention all keys.
    """
    c = config
    width, window = c.emb_dim, getattr(c, "local_window", None)
    kernels = 2 if window is None else 3  # ModernBERT's feed-forward layers are gated
    layer = length * (4 * width * width + kernels * width * c.mlp_dim)
    scores = lambda keys: 2 * length * keys * width
    all_keys = c.num_layers if window is None else 1 + (c.num_layers - 1) // c.global_every
    attended = all_keys * scores(length)
    if window is not None:
        attended += (c.num_layers - all_keys) * scores(min(length, window + 1))
    head = predicted * length * (width * width + width * c.vocab_size)
    return 3.0 * 2.0 * batch * (c.num_layers * layer + attended + head)


def batch_flops(model: Any, batch: Mapping[str, Any]) -> float | None:
    """Return the FLOP of one train step on a batch of these shapes, None for other networks."""
    config = getattr(getattr(model, "module", None), "config", None)
    rows, inputs = batch["encoder_input_tokens"].shape
    if hasattr(model, "predicted_share") and hasattr(config, "num_layers"):
        return encoder_flops(config, rows, inputs, model.predicted_share)
    if not hasattr(config, "num_encoder_layers"):
        return None
    return step_flops(config, rows, inputs, batch["decoder_target_tokens"].shape[1])


def batch_tokens(batch: Mapping[str, Any]) -> int:
    """Return the number of positions in a batch: inputs, and a decoder's targets."""
    sides = [batch[k] for k in ("encoder_input_tokens", "decoder_target_tokens") if k in batch]
    return sum(side.shape[0] * side.shape[1] for side in sides)


def peak_flops(device_kind: str) -> float | None:
    """Return the peak FLOP/s of a device by JAX's name for it, None if unknown."""
    names = [name for name in _PEAKS if device_kind.startswith(name)]
    return _PEAKS[max(names, key=len)] if names else None


def peak_share(
    model: Any, batch: Mapping[str, Any] | None, devices: int, device_kind: str
) -> float | None:
    """Return the MFU at one step a second, or None if the peak or the model's sizes are unknown.

    `batch` has the shapes of a global batch, `device_kind` is JAX's name for the devices.
    """
    peak = peak_flops(device_kind)
    if peak is None or not batch or (count := batch_flops(model, batch)) is None:
        return None
    return count / (devices * peak)
