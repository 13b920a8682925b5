"""NVIDIA's GPUs by name, to compile for without having one.

  devices = describe("h100")     # one described device

It needs jax-cuda12-plugin, jax-cuda12-pjrt and nvidia-cuda-nvcc-cu12; no driver and no GPU. Sizes
are from NVIDIA's data sheets and from the table of compute capabilities in the CUDA C++ Programming
Guide.
"""

import contextlib
import dataclasses
import importlib.util
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies

from preflight.aot import tpu_slices
from t5x.multihost import xla_options

# Without a GPU no product can be timed, so the compiler takes the first way for each.
OPTIONS = {"xla_gpu_autotune_level": 0}


@dataclasses.dataclass(frozen=True)
class Gpu:
    """What the compiler must know of a GPU."""

    kind: str  # JAX's name of the device
    capability: tuple[int, int]
    multiprocessors: int
    memory: float  # bytes
    bandwidth: float  # of memory, bytes a second
    clock: float  # GHz
    l2: int  # MiB
    shared: int  # KiB a multiprocessor; a block can have one less


GPUS = {
    "h100": Gpu("NVIDIA H100", (9, 0), 132, 80e9, 3.35e12, 1.98, 50, 228),
    "h200": Gpu("NVIDIA H200", (9, 0), 132, 141e9, 4.8e12, 1.98, 50, 228),
    "a100": Gpu("NVIDIA A100", (8, 0), 108, 40e9, 1.56e12, 1.41, 40, 164),
    "a100-80gb": Gpu("NVIDIA A100", (8, 0), 108, 80e9, 2.04e12, 1.41, 40, 164),
    "l4": Gpu("NVIDIA L4", (8, 9), 58, 24e9, 0.3e12, 2.04, 48, 100),
    "rtx4090": Gpu("NVIDIA GeForce RTX 4090", (8, 9), 128, 24e9, 1.01e12, 2.52, 72, 100),
}


def describe(name: str) -> list[Any]:
    """Return one device of `GPUS` to compile for. Raise ValueError if a package is missing."""
    if importlib.util.find_spec("jax_cuda12_plugin") is None:
        raise ValueError(
            f"compiling for a GPU needs jax's CUDA packages: pip install "
            f"jax-cuda12-plugin=={jax.__version__} jax-cuda12-pjrt=={jax.__version__} "
            "nvidia-cuda-nvcc-cu12."
        )
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"  # of a driver, which is not needed
    found = topologies.get_topology_desc(
        "gpu", platform="cuda", target_config=_target_config(GPUS[name]), topology="1x1x1"
    )
    return list(found.devices)


def traced_for(name: str) -> contextlib.AbstractContextManager:
    """Return a context in which kernels are traced for a GPU, which newer JAX asks for."""
    device = jax.sharding.AbstractDevice(GPUS[name].kind, None, "gpu")
    mesh = jax.sharding.AbstractMesh((), (), abstract_device=device)
    return jax.sharding.use_abstract_mesh(mesh)


def compile_step(name: str, make: Callable[[list[Any]], tuple[Any, Any]]) -> jax.stages.Compiled:
    """Return a train step compiled for a GPU; `make` returns trainer and shapes for its devices.

    Raise ValueError if a package is missing.
    """
    trainer, shapes = make(describe(name))
    trainer.xla_options = {**xla_options.ON_GPU, **OPTIONS}
    with traced_for(name):
        return trainer.lower(shapes).compile()


def report(
    label: str, name: str, make: Callable[[list[Any]], tuple[Any, Any]], dump: str | None
) -> None:
    """Print the memory of a step of `compile_step`, and write its program to the file `dump`.

    End with a sentence if a package is missing.
    """
    started = time.monotonic()
    try:
        compiled = compile_step(name, make)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    seconds = time.monotonic() - started
    if dump:
        Path(dump).write_text(compiled.as_text() or "")
    memory: Any = compiled.memory_analysis()
    temporary, held = memory.temp_size_in_bytes / 2**30, memory.argument_size_in_bytes / 2**30
    print(
        f"{label} {temporary:.2f} GiB temp  {held:.2f} GiB held  {seconds:.0f} s to compile",
        flush=True,
    )


def check_target(name: str, counts_cycles: bool) -> None:
    """Raise ValueError unless there is such a GPU or slice of TPUs, which alone counts cycles."""
    if name in GPUS:
        if counts_cycles:
            raise ValueError(
                f"--compile_for {name}: a GPU's compiler counts memory alone; leave out the flags "
                "that show cycles, such as --top"
            )
        return
    try:
        tpu_slices.find(name)
    except ValueError:
        known = ", ".join(GPUS)
        raise ValueError(
            f"--compile_for {name} is no slice of TPUs, such as v4-8, and none of {known}"
        ) from None


def _target_config(gpu: Gpu) -> str:
    """Return the text of XLA's `GpuTargetConfigProto`."""
    major, minor = gpu.capability
    return f"""
        gpu_device_info {{
          threads_per_block_limit: 1024
          threads_per_warp: 32
          threads_per_core_limit: {2048 if minor == 0 else 1536}
          shared_memory_per_block: 49152
          shared_memory_per_block_optin: {(gpu.shared - 1) * 1024}
          shared_memory_per_core: {gpu.shared * 1024}
          core_count: {gpu.multiprocessors}
          fpus_per_core: {128 if (major, minor) != (8, 0) else 64}
          block_dim_limit_x: 2147483647
          block_dim_limit_y: 65535
          block_dim_limit_z: 65535
          memory_bandwidth: {gpu.bandwidth:.0f}
          l2_cache_size: {gpu.l2 * 2**20}
          clock_rate_ghz: {gpu.clock}
          device_memory_size: {gpu.memory:.0f}
          registers_per_core_limit: 65536
          registers_per_block_limit: 65536
          cuda_compute_capability {{ major: {major} minor: {minor} }}
        }}
        platform_name: "CUDA"
        runtime_version {{ major: 12 }}
        dnn_version_info {{ major: 9 }}
    """
