"""A number that stands for all bits of an array, to be known again after disk and network.

  digest(array)                # 2917481002, of numpy
  digest(array, jnp)           # the same, on the devices, however the array is laid out over them

Every entry's bits are scrambled together with its place, and the results added modulo 2^32: parts
may be summed in any order, so that each device takes its own. A change of one entry always shows,
any other with probability 1 - 2^-32. It guards against damage, not against malice.
"""

from typing import Any

import numpy as np

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}
_ENTRIES = 1 << 15  # at a time, on the host: they stay in a core's cache


def has_digest(dtype: Any) -> bool:
    """Whether arrays of a dtype have one: those of 1, 2 or 4 bytes an entry."""
    return np.dtype(dtype).itemsize in _UNSIGNED


def digest(array: Any, xp: Any = np) -> Any:
    """uint32 of an array [...] of `has_digest`'s dtypes; `xp` is numpy or jax.numpy."""
    bits = (array.astype(np.uint8) if array.dtype == bool else array).view(
        _UNSIGNED[array.dtype.itemsize]
    )
    if xp is not np:
        place = sum(
            (
                xp.arange(size, dtype=np.uint32).reshape((-1,) + (1,) * (array.ndim - 1 - axis))
                * np.uint32(np.prod(array.shape[axis + 1 :], dtype=np.int64) % 2**32)
                for axis, size in enumerate(array.shape)
            ),
            np.uint32(0),
        )
        return _sum(bits, place, xp)
    total, flat = 0, bits.reshape(-1)
    for start in range(0, flat.size, _ENTRIES):
        part = flat[start : start + _ENTRIES]
        place = np.arange(start, start + part.size, dtype=np.int64).astype(np.uint32)
        total += int(_sum(part, place, np))
    return total % 2**32


def _sum(bits: Any, place: Any, xp: Any) -> Any:
    return xp.sum(_scrambled(bits.astype(np.uint32) ^ _scrambled(place)), dtype=np.uint32)


def _scrambled(x: Any) -> Any:
    """A bijection of 32 bits in which every bit of the input moves half of the output's.

    The constants are of a search: https://github.com/skeeto/hash-prospector.
    """
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)
