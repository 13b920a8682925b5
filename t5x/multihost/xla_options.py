"""Options of XLA for the train step on NVIDIA's GPUs, and the generations of TPUs.

The options leave all products to cuBLAS, which adds to a result what is added to it next, and do
not join products of one array, whose results would be cut apart again. On an H200 the first takes a
step of T5 1.1 base from 128.0 to 126.4 ms, and its compilation from 14 to 7 s.

TPUs have none: the compiler of jax 0.12 refuses on v4 and v5p the fusion of collectives that hides
them behind computation, and chooses by itself when a chip sends and receives.
"""

from collections.abc import Sequence

import jax

# The start of JAX's name of a device, and the generation; the longer ones first.
_GENERATIONS = {
    "TPU7x": "tpu7x", "TPU v6": "v6e", "TPU v5 lite": "v5e", "TPU v5e": "v5e", "TPU v5": "v5p",
    "TPU v4": "v4", "TPU v3": "v3", "TPU v2": "v2",
}  # fmt: skip
ON_GPU = {"xla_gpu_enable_triton_gemm": False, "xla_gpu_dot_merger_threshold_mb": 0}


def generation(device_kind: str) -> str | None:
    """Return the generation of TPUs of a device, `v4` or `v5e`, None for another device."""
    return next((v for k, v in _GENERATIONS.items() if device_kind.startswith(k)), None)


def options(devices: Sequence[jax.Device]) -> dict[str, str | int | bool]:
    """Return the options that programs over these devices have by default."""
    return dict(ON_GPU) if devices[0].device_kind.startswith("NVIDIA") else {}
