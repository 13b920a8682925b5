"""What the GPU's kernels do beyond the reference; their numbers are held in `test_kernels`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x.kernels import gpu_attention, gpu_norm, reference
from t5x.kernels.attention_mask import Segments
from t5x.kernels.gpu_attention import Reach

attend = functools.partial(gpu_attention.attend, interpret=True)


def normal(*shape):
    return jnp.asarray(np.random.default_rng(0).normal(size=shape) / 2, jnp.float32)


def test_a_query_without_keys_gets_zeros_and_gives_no_gradient():
    q, bias = normal(2, 64, 2, 16), normal(2, 127)
    where = Segments(jnp.full((2, 64), 2), jnp.ones((2, 64), jnp.int32))
    assert not attend(q, q, q, where, bias).any()
    assert not jax.grad(lambda x: jnp.cos(attend(x, q, q, where, bias)).sum())(q).any()


def test_queries_of_an_example_without_keys_attend_to_all_of_its_padding():
    q, k, v = normal(2, 50, 2, 16), normal(2, 70, 2, 16), normal(2, 70, 2, 16)
    where = Segments(jnp.asarray([[1] * 50, [2] * 50]), jnp.asarray([[0] * 70, [2] * 70]))
    wanted = reference.attend(q, k, v, None, None)
    np.testing.assert_allclose(attend(q, k, v, where), wanted, rtol=1e-4, atol=1e-5)


H100 = jax.sharding.AbstractDevice("NVIDIA H100", 132, "gpu")


def lowered(loss, *arrays):
    """Return the program of the gradients of `arrays`, for a GPU that need not be there."""
    mesh = jax.sharding.AbstractMesh((1,), ("x",), abstract_device=H100)
    with jax.sharding.use_abstract_mesh(mesh):
        traced = jax.jit(jax.grad(loss, tuple(range(len(arrays))))).trace(*arrays)
        return traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize(
    ("queries", "keys", "width", "biased", "causal", "radius"),
    [
        (114, 114, 64, True, True, None),
        (128, 128, 128, True, False, None),
        (114, 512, 64, False, False, None),
        (200, 200, 16, False, False, 64),
        (114, 626, 128, False, True, None),
    ],
)
def test_attention_becomes_kernels_for_a_gpu(queries, keys, width, biased, causal, radius):
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    k, bias = array(2, keys, 4, width), jax.ShapeDtypeStruct((4, queries + keys - 1), jnp.float32)
    ids = lambda length: jnp.ones((2, length), jnp.int32)

    def loss(q, k, v, *bias):
        where = Segments(ids(queries), ids(keys), causal, radius)
        return gpu_attention.attend(q, k, v, where, *bias).astype(jnp.float32).sum()

    program = lowered(loss, array(2, queries, 4, width), k, k, *[bias] * biased)
    # One forward, one of keys and values, one of queries, and one that sums the bias's gradient.
    assert program.count("triton") == 3 + biased


def test_the_norm_becomes_kernels_for_a_gpu():
    x, scale = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in [(2, 114, 768), (768,)])
    wide = lambda outs: sum(out.astype(jnp.float32).sum() for out in outs)
    program = lowered(lambda x, y, scale: wide(gpu_norm.rms_norm(x, y, scale, 1e-6)), x, x, scale)
    assert program.count("triton") == 2


def test_nan_is_not_hidden():
    q, ones = normal(2, 64, 2, 16), jnp.ones((2, 64), jnp.int32)
    found = attend(q.at[0, 3].set(jnp.nan), q, q, Segments(ones, ones).replace(causal=True))
    assert jnp.isnan(found[0, 3]).all()
    assert not jnp.isnan(found[0, 2]).any()


ALL, IDS = [[1] * 256], [[1] * 128 + [2] * 64 + [0] * 64]
NEAR = [[0, 2], [0, 3], [1, 4], [2, 4]]


@pytest.mark.parametrize(
    ("ids", "reach", "tiles", "count"),
    [
        (IDS, Reach(), [[0, 2], [0, 2], [2, 3], [0, 0]], 5),
        (ALL, Reach(radius=1), NEAR, 10),
        (ALL, Reach(radius=64), NEAR, 10),
        (ALL, Reach(radius=65), [[0, 3], [0, 4], [0, 4], [1, 4]], 14),
        (ALL, Reach(causal=True), [[0, 1], [0, 2], [0, 3], [0, 4]], 10),
        (ALL, Reach(causal=True, earlier=1), [[0, 2], [0, 3], [0, 4], [0, 4]], 13),
        (ALL, Reach(causal=True, earlier=64), [[0, 2], [0, 3], [0, 4], [0, 4]], 13),
    ],
)
def test_tiles_out_of_reach_are_skipped(ids, reach, tiles, count):
    """Those without a common segment, beyond the radius, or later if causal."""
    plan = gpu_attention.plan_of(jnp.asarray(ids), jnp.asarray(ids), reach)
    assert plan.in_row.tolist() == [tiles]
    assert plan.counts.sum() == count
