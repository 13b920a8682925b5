"""Newton-Schulz iterations of many matrices, alone and spread over devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x.kernels.orthogonal import orthogonalize
from t5x.partitioning import PjitPartitioner

# Scanned kernels of two widths, of a projection to heads, and one matrix alone: shapes, which
# dimensions are rows and columns, and logical axes.
KINDS = [
    ((16, 3, 24), ((0,), (2,)), ("embed", "layers", "mlp")),
    ((24, 5, 16), ((2,), (0,)), ("mlp", "layers", "embed")),
    ((16, 4, 2, 8), ((0,), (2, 3)), ("embed", "layers", "heads", "kv")),
    ((16, 24), ((0,), (1,)), ("embed", "mlp")),
]
DIMENSIONS = [dimensions for _, dimensions, _ in KINDS]
STEPS, EPSILON = 5, 1e-8


@pytest.fixture(scope="module")
def matrices():
    random = np.random.default_rng(0)
    return [jnp.asarray(random.normal(size=shape), jnp.float32) for shape, *_ in KINDS]


def single(array, dimensions):
    """Yield the matrices of an array."""
    (rows, columns), sizes = dimensions, array.shape
    count = [i for i in range(array.ndim) if i not in (*rows, *columns)]
    ordered = np.asarray(array).transpose(*count, *rows, *columns)
    yield from ordered.reshape(-1, *(int(np.prod([sizes[i] for i in d])) for d in (rows, columns)))


def test_every_matrix_gets_singular_values_near_1_and_keeps_its_vectors(matrices):
    found = orthogonalize(matrices, DIMENSIONS, STEPS, EPSILON)
    pairs = [
        pair
        for kind in zip(matrices, found, DIMENSIONS, strict=True)
        for pair in zip(single(kind[0], kind[2]), single(kind[1], kind[2]), strict=True)
    ]
    assert len(pairs) == 3 + 5 + 4 + 1
    for before, after in pairs:
        u, _, v = np.linalg.svd(before, full_matrices=False)
        values = np.diag(u.T @ after @ v.T)
        np.testing.assert_allclose(u @ np.diag(values) @ v, after, atol=1e-4)
        if before.shape != (16, 16):  # a square one of noise has values near 0, which take longer
            assert values.min() > 0.5
        assert values.max() < 1.5


@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_it_is_the_same_on_eight_devices(matrices, partitions):
    partitioner = PjitPartitioner(num_partitions=partitions)
    shardings = [partitioner.sharding(axes, shape) for shape, _, axes in KINDS]
    with partitioner.activations():
        found = jax.jit(lambda x: orthogonalize(x, DIMENSIONS, STEPS, EPSILON))(
            jax.device_put(matrices, shardings)
        )
    for one, other in zip(found, orthogonalize(matrices, DIMENSIONS, STEPS, EPSILON), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_every_matrix_is_computed_on_one_device():
    """The products on a device are an eighth of all."""
    partitioner = PjitPartitioner(num_partitions=2)
    shape, dimensions, axes = (128, 16, 256), ((0,), (2,)), ("embed", "layers", "mlp")
    sharding = partitioner.sharding(axes, shape)
    given = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    def products(context):
        step = lambda x: orthogonalize([x], [dimensions], STEPS, EPSILON)
        with context:
            return jax.jit(step, out_shardings=[sharding]).lower(given).compile()

    rows, count, columns = shape
    iteration = count * (4 * rows * rows * columns + 2 * rows**3)
    flops = products(partitioner.activations()).cost_analysis()["flops"]
    assert STEPS * iteration / 8 <= flops < 1.2 * STEPS * iteration / 8
