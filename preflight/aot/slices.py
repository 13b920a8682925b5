"""TPU slices by name: number and shape of chips, and what a chip can do.

  tpu = find("v4-32")
  tpu.chips                    # 16: the number in a v4's name counts TensorCores, two a chip
  tpu.chip.peak_flops          # 275e12
  devices = tpu.devices()      # 16 described devices to compile for; needs ENVIRONMENT

Peaks, bandwidths and memory are from Google Cloud's TPU pages, system architecture, such as
docs.cloud.google.com/tpu/docs/tpu7x; links of v2 and v3 from Jouppi et al. 2020
(doi.org/10.1145/3360307). Clocks follow from the peak (two FLOP per cycle and cell of each matrix
unit). The memory that a program may use is the one that the compiler states when a program does not
fit.
"""

import dataclasses
import difflib
import math
import os
import re

from common.errors import UserError, require

GIB = 2**30

# libtpu must not wait for a TPU of this machine, and several processes may compile at once.
ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "JAX_PLATFORMS": "cpu",
}


@dataclasses.dataclass(frozen=True)
class Chip:
    """One chip of a generation."""

    peak_flops: float  # bfloat16, a second
    bandwidth: float  # bytes a second of HBM
    clock: float  # Hz
    hbm: float  # GiB that a program may use on one device
    devices: int  # JAX devices a chip: one for each core (v2, v3, TPU7x) or one
    cores: int  # TensorCores, if a slice's name counts these, else 1
    link: float  # bytes a second in each direction of a link to a neighbour
    topology: str  # prefix of libtpu's topology name
    config: str | None = None  # libtpu's chip configuration


CHIPS = {
    "v2": Chip(45e12, 700e9, 0.70e9, 7.48, 2, 2, 62e9, "v2", "default"),
    "v3": Chip(123e12, 900e9, 0.94e9, 15.48, 2, 2, 82e9, "v3", "default"),
    "v4": Chip(275e12, 1228e9, 1.05e9, 30.75, 1, 2, 50e9, "v4", "megacore"),
    "v5e": Chip(197e12, 819e9, 1.50e9, 15.75, 1, 1, 50e9, "v5e"),
    "v5p": Chip(459e12, 2765e9, 1.75e9, 95.74, 1, 2, 100e9, "v5", "megacore"),
    "v6e": Chip(918e12, 1640e9, 1.75e9, 31.25, 1, 1, 100e9, "v6e"),
    "tpu7x": Chip(2307e12, 7380e9, 2.20e9, 94.75, 2, 2, 100e9, "tpu7x"),
}
_ALIASES = {"v5litepod": "v5e"}


def _shapes(*shapes: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    return {math.prod(shape): shape for shape in shapes}


_SOLID = _shapes((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 8), (4, 8, 8))
_FLAT = _shapes((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
_SHAPES = {
    "v2": {n: _FLAT[n] for n in (4, 16, 64, 128, 256)},
    "v3": {n: _FLAT[n] for n in (4, 16, 32, 64, 128, 256)},
    "v4": _SOLID,
    "v5e": _FLAT,
    "v5p": _SOLID,
    "v6e": _FLAT,
    "tpu7x": _SOLID,
}


@dataclasses.dataclass(frozen=True)
class Slice:
    """A slice: its name, its kind of chip and the shape of its topology."""

    name: str
    chip: Chip
    shape: tuple[int, ...]

    @property
    def chips(self) -> int:
        """The number of chips."""
        return math.prod(self.shape)

    @property
    def device_count(self) -> int:
        """The number of JAX devices."""
        return self.chips * self.chip.devices

    @property
    def host_shape(self) -> tuple[int, ...]:
        """Chips of a host: 2 × 2, and all eight of the small flat slices of one machine."""
        if self.chip.cores == 1 and self.chips == 8:
            return (*self.shape, 1)
        return (*(min(2, n) for n in self.shape[:2]), 1)

    @property
    def hosts(self) -> int:
        """The number of machines."""
        return max(1, self.chips // math.prod(self.host_shape))

    @property
    def link_bandwidth(self) -> float:
        """Bytes a second that a chip receives over all its links.

        A ring has two links to a chip, a line no more than one for all. Cubes close to rings where
        every side is a multiple of four, flat slices where a side is as long as a full pod's.
        """
        full = 32 if self.chip.topology == "v3" else 16
        cubes = len(self.shape) == 3 and all(side % 4 == 0 for side in self.shape)
        links = sum((side > 1) + (cubes or side == full) for side in self.shape)
        return links * self.chip.link

    @property
    def peak_flops(self) -> float:
        """Bfloat16 FLOP a second of the slice."""
        return self.chips * self.chip.peak_flops

    def devices(self) -> list:
        """Return described devices, for which a step can be compiled but not run.

        Raise UserError if libtpu is not installed.
        """
        require("libtpu")
        os.environ.update({k: v for k, v in ENVIRONMENT.items() if k != "JAX_PLATFORMS"})
        # Entry points set the platform before jax is loaded.
        from jax.experimental import topologies

        config = {"chip_config_name": self.chip.config} if self.chip.config else {}
        topology = topologies.get_topology_desc(
            platform="tpu",
            topology_name=f"{self.chip.topology}:{'x'.join(map(str, self.shape))}",
            chips_per_host_bounds=self.host_shape,
            num_slices=1,
            **config,
        )
        return list(topology.devices)


def names() -> list[str]:
    """Return the names of all known slices."""
    return [
        f"{kind}-{chips * CHIPS[kind].cores}"
        for kind, shapes in _SHAPES.items()
        for chips in shapes
    ]


def find(name: str) -> Slice:
    """Return the slice called `name` (`v4-32`, `v5litepod-16`), or raise UserError."""
    match = re.fullmatch(r"(\w+)-(\d+)", name.strip().lower())
    kind, size = (_ALIASES.get(match[1], match[1]), match[2]) if match else (name, "")
    plain = f"{kind}-{size}"
    if plain not in names():
        near = difflib.get_close_matches(plain, names(), 3, 0.5) or names()
        to_set = f"set it to one like {', '.join(near)}"
        raise UserError("--slice", name, "which is no known TPU slice", to_set)
    chip = CHIPS[kind]
    return Slice(plain, chip, _SHAPES[kind][int(size) // chip.cores])
