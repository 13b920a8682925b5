"""Pseudo-random permutations of range(n) that need no memory.

    permute(np.arange(4), n=10, key=(7,))    # array([0, 6, 8, 9])
    permute(np.arange(10), n=10, key=(7,))   # begins with the same 4 and has every number once

A Feistel network permutes the smallest range of a power of two that includes n; numbers outside of
range(n) are permuted again until they are inside, which is a permutation of range(n) (Black and
Rogaway 2002, "Ciphers with arbitrary finite domains"). The values depend on this module and on
numpy's SeedSequence alone, whose numbers are the same in all versions.
"""

from collections.abc import Sequence

import numpy as np

ROUNDS = 8


def permute(positions: np.ndarray, n: int, key: Sequence[int]) -> np.ndarray:
    """Return the numbers at some positions of a permutation of range(n).

    Args:
      positions: int64 [k], each below `n`.
      n: at least 1.
      key: integers from 0; each key has its own permutation.

    Returns:
      int64 [k].
    """
    bits = max((n - 1).bit_length(), 2)
    low = np.uint64(bits // 2)
    masks = [np.uint64((1 << width) - 1) for width in (bits - bits // 2, bits // 2)]
    keys = np.random.SeedSequence(key).generate_state(ROUNDS, np.uint64)

    def permute_power_of_two(x: np.ndarray) -> np.ndarray:
        sides = [x >> low, x & masks[1]]
        for i, round_key in enumerate(keys):
            side = i % 2
            sides[side] = sides[side] ^ (_mixed(sides[1 - side] + round_key) & masks[side])
        return (sides[0] << low) | sides[1]

    found = permute_power_of_two(positions.astype(np.uint64))
    while len(outside := np.flatnonzero(found >= n)):
        found[outside] = permute_power_of_two(found[outside])
    return found.astype(np.int64)


def _mixed(x: np.ndarray) -> np.ndarray:
    """Return 64 bits that each depend on all bits of `x`: the output function of SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
