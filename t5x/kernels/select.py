"""Chooses the kernels: the only module that looks at a platform, a dtype or a shape to do so.

    kind = select.attention(config)                              # "xla", say
    seen = select.seen(kind, Segments(targets_BT, inputs_BI))    # once for all layers
    bias = select.bias(kind, by_distance_HN, queries=T)          # once for all layers
    out_BQHK = select.attend(kind, q_BQHK, k_BSHK, v_BSHK, seen, bias)
    total_BID, normed_BID = select.rms_norm(x_BID, y_BID, scale_D, 1e-6)

`reference` defines what each function computes. Functions with one kernel for all devices (`dense`,
`feed_forward`, `layer_norm`, `lookup`, `gelu`, `log_normalizer`) are named here, too, so that a
network needs no other module.

Shapes: B batch, I inputs, T targets, L either, Q queries, S keys, D emb_dim, H heads, K head_dim,
N distances.
"""

import importlib.util
import re
from typing import Any, Literal

import jax
import jax.numpy as jnp
from absl import logging

from common.errors import UserError
from t5x.kernels import attention_mask, cudnn, local_attention, reference, tpu, xla
from t5x.kernels.attention_mask import Segments
from t5x.kernels.xla import dense, feed_forward, gelu, layer_norm, log_normalizer, lookup
from t5x.partitioning import devices

__all__ = ["dense", "feed_forward", "gelu", "layer_norm", "log_normalizer", "lookup"]

Attention = Literal["auto", "flash", "xla", "cudnn", "plain"]
RematPolicy = Literal["auto", "none", "products", "minimal", "full"]
HEAD_DIMS = (16, 32, 64, 128)  # widths of a head that `flash` has
# What the kernels of one kind read instead of segments: the segments themselves, a mask bool
# [B, 1, Q, S], True where a query attends to a key, or a window of near keys.
Seen = Segments | jax.Array | local_attention.Window


def _is_cudnns(primitive: Any, *_: Any, **__: Any) -> bool:
    """Return whether `primitive` is cuDNN's attention, whose output has no name to keep it by."""
    return primitive.name.startswith("dot_product_attention_fwd")


_either = jax.checkpoint_policies.save_from_both_policies
_ATTENTION = _either(_is_cudnns, jax.checkpoint_policies.save_only_these_names(xla.KEPT))
REMAT = {
    "products": _either(_ATTENTION, jax.checkpoint_policies.dots_with_no_batch_dims_saveable),
    "minimal": _ATTENTION,
    "full": None,
}
CUDNN_OR_XLA = "cudnn or xla"  # the kind of `auto` without Triton: XLA takes odd lengths
# What `remat_policy = 'auto'` means with these kinds of attention.
REMAT_ON_GPU = {"flash": "none", "cudnn": "products", CUDNN_OR_XLA: "products"}
# The language of our GPU kernels, which JAX deprecates since 0.11, and releases that have it.
_TRITON = "jax.experimental.pallas.triton"
JAX_WITH_TRITON = "jax<0.13"


def platform() -> str:
    """Return the platform that the program is traced for: `cpu`, `gpu` or `tpu`."""
    return devices()[0].platform


def has_triton() -> bool:
    """Return whether this JAX has the language of our GPU kernels."""
    return importlib.util.find_spec(_TRITON) is not None


def is_ampere() -> bool:
    """Return whether the program is traced for an NVIDIA GPU of Ampere or newer."""
    capability = str(getattr(devices()[0], "compute_capability", ""))  # AMD's are no numbers
    is_number = re.fullmatch(r"\d+\.\d+", capability) is not None
    return platform() == "gpu" and is_number and float(capability) >= 8


def prefers_gpu_kernels() -> bool:
    """Return whether our GPU kernels are the default: on one GPU, where they were measured."""
    return has_triton() and is_ampere() and len(devices()) == 1


def check(config: Any) -> None:
    """Raise UserError for numerics of a network's configuration that no device can compute.

    These are its `dtype`, `attention`, `head_dim` and, where it has it, `float32_attention_logits`.
    """
    owner = type(config).__name__
    if not jnp.issubdtype(config.dtype, jnp.floating):
        raise UserError(
            f"{owner}.dtype",
            jnp.dtype(config.dtype).name,
            "which holds no fractions",
            "set it to 'bfloat16' or 'float32'",
        )
    faults = _faults(config.attention, config) if config.attention in REMAT_ON_GPU else []
    if faults:
        raise UserError(
            f"{owner}.attention",
            config.attention,
            f"which works in bfloat16 or float16, but {' and '.join(faults)}",
            f"change that, or set network.{owner}.attention to 'xla'",
        )


def _faults(kind: str, config: Any) -> list[str]:
    """Return what keeps a GPU's kernels from computing the attention of a configuration."""
    owner, dtype = type(config).__name__, jnp.dtype(config.dtype)
    faults = [f"{owner}.dtype is {dtype.name}"] if dtype.itemsize != 2 else []
    if getattr(config, "float32_attention_logits", False):  # encoders do not have it
        faults.append(f"{owner}.float32_attention_logits is True")
    if kind == "flash" and config.head_dim not in HEAD_DIMS:
        faults.append(f"{owner}.head_dim is {config.head_dim}, not one of {HEAD_DIMS}")
    return faults


def attention(config: Any) -> str:
    """Return the kind of attention that a network computes here.

    It is an `Attention` other than `auto`, or `CUDNN_OR_XLA`. Raise UserError if the configured one
    cannot run on this device.
    """
    kind, setting = config.attention, f"{type(config).__name__}.attention"
    if kind == "auto":
        if _faults("flash", config):
            return "xla"
        if prefers_gpu_kernels():
            return "flash"
        if is_ampere() and len(devices()) == 1:
            logging.log_first_n(
                logging.WARNING,
                "JAX %s has no Triton for our GPU kernels: attention is computed by cuDNN, and by "
                "XLA for odd lengths and norms; %s trains faster.",
                1,
                jax.__version__,
                JAX_WITH_TRITON,
            )
            return CUDNN_OR_XLA
        return "xla"
    if (kind == "flash" and not is_ampere()) or (kind == "cudnn" and platform() != "gpu"):
        raise UserError(
            setting,
            kind,
            f"whose kernels need an NVIDIA GPU of Ampere or newer, not a {platform()} like this",
            f"set network.{setting} to 'xla'",
        )
    if kind == "flash" and not has_triton():
        why = f"whose kernels need Triton, which JAX {jax.__version__} lacks"
        to_set = f"install {JAX_WITH_TRITON}, or set network.{setting} to 'cudnn'"
        raise UserError(setting, kind, why, to_set)
    return kind


def layer_loop(config: Any, initializing: bool) -> tuple[str, bool]:
    """Return the remat policy of a stack of layers, and whether they are compiled one by one.

    One body that runs all layers in a loop compiles faster. But a loop copies all that the gradient
    needs into its arrays and out of them again, which costs a GPU's fast kernels a notable share.
    """
    kind, policy = attention(config), config.remat_policy
    if policy == "auto":
        policy = REMAT_ON_GPU.get(kind, "none" if platform() == "cpu" else "minimal")
    return policy, kind in REMAT_ON_GPU and not initializing


def seen(kind: str, segments: Segments) -> Seen:
    """Return which keys queries attend to, as `attend` of this kind reads it."""
    if kind == "flash":
        return segments
    if segments.radius is not None:
        return local_attention.window(segments.queries, segments.radius)
    return jax.lax.optimization_barrier(attention_mask.mask(segments))  # once, not in every layer


def bias(kind: str, by_distance_HN: jax.Array, queries: int) -> jax.Array:
    """Return a bias by distance [H, Q + S - 1] as `attend` of this kind reads it."""
    return by_distance_HN if kind == "flash" else xla.by_positions(by_distance_HN, queries)


def attend(
    kind: str,
    q_BQHK: jax.Array,
    k_BSHK: jax.Array,
    v_BSHK: jax.Array,
    seen: Seen | None,
    bias: jax.Array | None = None,
) -> jax.Array:
    """Return values [B, Q, H, K] weighted by the softmax over the keys seen of q·k + bias.

    Logits are not divided by sqrt(K). Raise UserError if cuDNN does not take the lengths.
    """
    if isinstance(seen, Segments):
        from t5x.kernels import gpu_attention

        interpret = platform() != "gpu"  # tests run the kernel on a CPU
        return gpu_attention.attend(q_BQHK, k_BSHK, v_BSHK, seen, bias, interpret)
    by_xla = tpu.attend if platform() == "tpu" else xla.attend
    kinds = {"plain": reference.attend, "xla": by_xla}
    kinds |= {"cudnn": _by_cudnn, CUDNN_OR_XLA: _by_cudnn_or_xla}
    compute = kinds[kind]
    if isinstance(seen, local_attention.Window):
        return local_attention.attend(compute, q_BQHK, k_BSHK, v_BSHK, seen)
    return compute(q_BQHK, k_BSHK, v_BSHK, seen, bias)


def _by_cudnn(q_BQHK, k_BSHK, v_BSHK, mask, bias) -> jax.Array:
    lengths = q_BQHK.shape[1], k_BSHK.shape[1]
    if 1 in lengths:  # initialization, and decoding, which has one query at a time
        return xla.attend(q_BQHK, k_BSHK, v_BSHK, mask, bias)
    if any(length % 2 for length in lengths):
        raise UserError(
            "The network's attention",
            "cudnn",
            f"which takes even lengths, not {lengths[0]} queries and {lengths[1]} keys",
            "change TASK_FEATURE_LENGTHS, or set it to 'xla'",
        )
    return cudnn.attend(q_BQHK, k_BSHK, v_BSHK, mask, bias)


def _by_cudnn_or_xla(q_BQHK, k_BSHK, v_BSHK, mask, bias) -> jax.Array:
    is_odd = q_BQHK.shape[1] % 2 or k_BSHK.shape[1] % 2
    compute = xla.attend if is_odd else _by_cudnn
    return compute(q_BQHK, k_BSHK, v_BSHK, mask, bias)


def rms_norm(
    x_BID: jax.Array, y_BID: jax.Array | None, scale_D: jax.Array, epsilon: float
) -> tuple[jax.Array, jax.Array]:
    """Return `x_BID` plus `y_BID` if there is one, and that over its root mean square of D.

    The second is multiplied by `scale_D`, in the scale's dtype.
    """
    if not prefers_gpu_kernels():
        return xla.rms_norm(x_BID, y_BID, scale_D, epsilon)
    from t5x.kernels import gpu_norm

    return gpu_norm.rms_norm(x_BID, y_BID, scale_D, epsilon, interpret=platform() != "gpu")
