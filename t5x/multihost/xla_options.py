"""Options of XLA for the train step, by generation of TPUs and for NVIDIA's GPUs.

Those of TPUs hide collectives behind computation; Google's MaxText sets the same. They change when
a chip sends and receives, not what it computes: for T5 1.1 base on a v4-32 the compiler counts
1.001 of the cycles and 0.19 GiB more temporary memory, and takes 92 s instead of 62
(`benchmarks/step.py`; collectives that run beside computation are counted as if they did not).

Those of GPUs leave all products to cuBLAS, which adds to a result what is added to it next, and do
not join products of one array, whose results would be cut apart again. On an H200 the first takes a
step of T5 1.1 base from 128.0 to 126.4 ms, and its compilation from 14 to 7 s.

Those of a CPU are for all programs of a process. LLVM leaves out passes that order instructions,
which such a processor does itself, and that lengthen loops. Of XLA's own, one fuses what reads the
same arrays. For narrow models another does without the emitter that transposes in tiles, which is
slow to compile: T5 1.1 tiny compiles for 5 s instead of 7 by these two, and its steps take as long.
Without tiles the step of T5 1.1 small takes 1.03 to 1.07 of the time, since the numbers of a column
compete for the same lines of a cache (benchmarks/README.md, "The start").
"""

from collections.abc import MutableMapping, Sequence

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


_ON_CPU = (
    "-disable-lsr=true",
    "-disable-post-ra=true",
    "-enable-misched=false",
    "-force-vector-interleave=1",
    "-unroll-threshold=50",
    "xla_cpu_use_multi_output_fusion",
)
_NARROW = "xla_cpu_disable_tiled_emitter"
NARROW_WIDTH = 256  # below it, a column of the activations stays in a core's caches
_EXTRA = "--xla_backend_extra_options"
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


def options_on_cpu(width: int) -> str:
    """Return XLA's extra options for a model whose activations have `width` numbers a token."""
    return ",".join([*_ON_CPU, _NARROW] if width < NARROW_WIDTH else _ON_CPU)


def set_on_cpu(environment: MutableMapping[str, str], width: int) -> None:
    """Set up XLA, before its first use, in a process with JAX_PLATFORMS=cpu.

    `options_on_cpu` are added to XLA_FLAGS, unless such options are there already. Freed memory is
    kept for the next step. Programs run in the thread that calls them, since glibc returns the
    memory of other threads to the system anyway.
    """
    if environment.get("JAX_PLATFORMS") != "cpu":
        return
    given = environment.get("XLA_FLAGS", "")
    if _EXTRA not in given:
        environment["XLA_FLAGS"] = f"{given} {_EXTRA}={options_on_cpu(width)}".strip()
    jax.config.update("jax_cpu_enable_async_dispatch", False)
