"""Options of XLA for the train step, by generation of TPUs and for NVIDIA's GPUs.

Those of TPUs hide collectives behind computation; Google's MaxText sets the same. They change when
a chip sends and receives, not what it computes: for T5 1.1 base on a v4-32 the compiler counts
1.001 of the cycles and 0.19 GiB more temporary memory, and takes 92 s instead of 62
(`benchmarks/step.py`; collectives that run beside computation are counted as if they did not).

Those of GPUs leave all products to cuBLAS, which adds to a result what is added to it next, and do
not join products of one array, whose results would be cut apart again. On an H200 the first takes a
step of T5 1.1 base from 128.0 to 126.4 ms, and its compilation from 14 to 7 s.
"""

from collections.abc import Sequence

import jax

# The start of JAX's name of a device, and the generation; the longer ones first.
_GENERATIONS = {
    "TPU v6": "v6e", "TPU v5 lite": "v5e", "TPU v5e": "v5e", "TPU v5": "v5p", "TPU v4": "v4",
    "TPU v3": "v3", "TPU v2": "v2",
}  # fmt: skip
_OVERLAP = {
    "xla_enable_async_all_gather": "true",
    "xla_enable_async_collective_permute": "true",
    "xla_tpu_enable_async_collective_fusion": "true",
    "xla_tpu_enable_async_collective_fusion_fuse_all_gather": "true",
    "xla_tpu_overlap_compute_collective_tc": "true",
}
# What `launch/step_benchmark.sh` times with and without.
OPTIONS = {
    "v4": _OVERLAP,
    "v5e": _OVERLAP,
    "v5p": _OVERLAP,
    # More of the fast memory for a fusion, and SparseCores that add up gradients.
    "v6e": {
        "xla_tpu_scoped_vmem_limit_kib": "98304",
        "xla_tpu_enable_sparse_core_collective_offload_all_reduce": "true",
    },
}
# Those of v6e change more than the moment of a collective, so they wait for a measurement.
BY_DEFAULT = ("v4", "v5e", "v5p")

ON_GPU = {"xla_gpu_enable_triton_gemm": False, "xla_gpu_dot_merger_threshold_mb": 0}


def generation(device_kind: str) -> str | None:
    """Return the generation of TPUs of a device, `v4` or `v5e`, None for another device."""
    return next((v for k, v in _GENERATIONS.items() if device_kind.startswith(k)), None)


def options(devices: Sequence[jax.Device]) -> dict[str, str | int | bool]:
    """Return the options that programs over these devices have by default.

    There are none for a single TPU.
    """
    kind = devices[0].device_kind
    if kind.startswith("NVIDIA"):
        return dict(ON_GPU)
    tpu = generation(kind)
    return dict(OPTIONS[tpu]) if len(devices) > 1 and tpu in BY_DEFAULT else {}
