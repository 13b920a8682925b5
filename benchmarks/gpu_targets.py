"""NVIDIA's GPUs by name, so that a step can be compiled for one that is not here.

  devices = describe("h100")     # one described device

It needs jax-cuda12-plugin, jax-cuda12-pjrt and nvidia-cuda-nvcc-cu12; no driver and no GPU. Sizes
are from NVIDIA's data sheets and from the table of compute capabilities in the CUDA C++ Programming
Guide.
"""

import dataclasses
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import jax
from jax.experimental import topologies

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
    bandwidth: float  # bytes a second of memory
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
    # The check looks for a driver, which is not needed.
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
    topology = topologies.get_topology_desc(
        "gpu", platform="cuda", target_config=_target_config(GPUS[name]), topology="1x1x1"
    )
    return list(topology.devices)


def compile_step(name: str, make: Callable[[list[Any]], tuple[Any, Any]]) -> jax.stages.Compiled:
    """Return a train step compiled for a GPU; `make` returns trainer and shapes for its devices.

    Raise ValueError if a package is missing.
    """
    trainer, shapes = make(describe(name))
    trainer.xla_options = {**xla_options.ON_GPU, **OPTIONS}
    # Newer JAX asks the mesh for which device kernels are traced.
    device = jax.sharding.AbstractDevice(GPUS[name].kind, None, "gpu")
    mesh = jax.sharding.AbstractMesh((), (), abstract_device=device)
    with jax.sharding.use_abstract_mesh(mesh):
        return trainer.lower(shapes).compile()


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
