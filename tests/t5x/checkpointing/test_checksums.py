"""A digest depends on every bit and its position, and on nothing else."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from t5x.checkpointing import checksums
from t5x.checkpointing.checksums import digest


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "bool"])
# The host adds up parts of 32,768 entries.
@pytest.mark.parametrize("shape", [(), (1,), (8, 24), (4, 2, 16), (40_000,)])
def test_numpy_and_devices_agree_however_the_array_is_cut(dtype, shape):
    array = np.random.default_rng(0).normal(0, 9, shape).astype(jnp.dtype(dtype))
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    wanted = digest(array)
    for spec in ((), ("data",), ("data", "model"), ("model", None)):
        parts = [mesh.shape[axis] if axis else 1 for axis in spec]
        if len(spec) <= len(shape) and not any(map(operator.mod, shape, parts)):
            placed = jax.device_put(array, NamedSharding(mesh, PartitionSpec(*spec)))
            assert int(jax.jit(lambda x: digest(x, jnp))(placed)) == wanted


def test_any_bit_and_any_place_counts():
    array = np.random.default_rng(0).normal(size=(6, 50)).astype(np.float32)
    wanted = digest(array)
    assert wanted == 821865660
    seen = {wanted}
    for place in (0, 1, 149, 299):
        for bit in range(32):
            changed = array.copy()
            changed.reshape(-1).view(np.uint32)[place] ^= np.uint32(1 << bit)
            seen.add(digest(changed))
    signs = array.copy()
    signs[:, :2] *= -1  # many flips of the highest bit, which plain sums would add up to nothing
    seen |= {digest(signs), digest(array[::-1].copy()), digest(np.zeros_like(array))}
    assert len(seen) == 1 + 4 * 32 + 3


def test_arrays_of_eight_bytes_have_none():
    assert checksums.has_digest(jnp.bfloat16)
    assert not checksums.has_digest(np.int64)
