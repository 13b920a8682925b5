"""Compute a digest of all bits of an array, to detect damage by disk or network.

  digest(array)                # 2917481002, of numpy
  digest(array, jnp)           # the same, on the devices, however the array is sharded

Every entry's bits are hashed together with its position, and the hashes added modulo 2^32: parts
may be summed in any order, so each device sums its own. A change of one entry is always detected,
any other with probability 1 - 2^-32. It guards against damage, not against an attacker.
"""

from typing import Any

import numpy as np

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}
_ENTRIES = 1 << 15  # entries at a time on the host, so that they stay in a core's cache


def has_digest(dtype: Any) -> bool:
    """Return whether arrays of a dtype have a digest, which 1, 2 or 4 bytes an entry have."""
    return np.dtype(dtype).itemsize in _UNSIGNED


def digest(array: Any, xp: Any = np) -> Any:
    """Return the uint32 digest of an array of `has_digest`'s dtypes; `xp` is numpy or jax.numpy."""
    bits = (array.astype(np.uint8) if array.dtype == bool else array).view(
        _UNSIGNED[array.dtype.itemsize]
    )
    if xp is not np:
        position = sum(
            (
                xp.arange(size, dtype=np.uint32).reshape((-1,) + (1,) * (array.ndim - 1 - axis))
                * np.uint32(np.prod(array.shape[axis + 1 :], dtype=np.int64) % 2**32)
                for axis, size in enumerate(array.shape)
            ),
            np.uint32(0),
        )
        return _sum(bits, position, xp)
    total, flat = 0, bits.reshape(-1)
    for start in range(0, flat.size, _ENTRIES):
        part = flat[start : start + _ENTRIES]
        position = np.arange(start, start + part.size, dtype=np.int64).astype(np.uint32)
        total += int(_sum(part, position, np))
    return total % 2**32


def _sum(bits: Any, position: Any, xp: Any) -> Any:
    return xp.sum(_hash(bits.astype(np.uint32) ^ _hash(position)), dtype=np.uint32)


def _hash(x: Any) -> Any:
    """Return a bijection of 32 bits in which every input bit changes half of the output bits.

    The constants were found by https://github.com/skeeto/hash-prospector.
    """
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)
