"""Every kernel computes its reference, values and gradients, on one device and on several."""

import contextlib
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from t5x.kernels import (
    attention_mask,
    cudnn,
    gpu_attention,
    gpu_norm,
    local_attention,
    reference,
    select,
    tpu,
    xla,
)
from t5x.kernels.attention_mask import Segments
from t5x.partitioning import PjitPartitioner

BATCH, HEADS, WIDTH = 4, 2, 16
NEAR = {"float32": 1e-4, "bfloat16": 0.03, "float16": 0.01}  # of the largest number


def normal(*shape, seed=0, scale=1.0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape) * scale, jnp.float32)


def assert_same(kernel, wanted, arrays, dtype="float32", devices=1, used=1.0, near=None):
    """Hold a kernel's results of float `arrays` in `dtype`, and their gradients, to float32's.

    `used` is 0 for results that nobody uses, which need not be the reference's. With `devices`, the
    kernel runs on so many, two of them for the heads of each row. `near` is the greatest error, of
    the largest number.
    """

    def both(function):
        def loss(*arrays):
            outs = [used * x.astype(jnp.float32) for x in jax.tree.leaves(function(*arrays))]
            weights = (jnp.cos(jnp.arange(x.size).reshape(x.shape)) for x in outs)
            return sum((x * w).sum() for x, w in zip(outs, weights, strict=True)), outs

        return jax.jit(jax.grad(loss, tuple(range(len(arrays))), has_aux=True))

    arrays = [x.astype(dtype) for x in arrays]
    partitioner = PjitPartitioner(2, devices=jax.devices()[:devices]) if devices > 1 else None
    with partitioner.activations() if partitioner else contextlib.nullcontext():
        found = both(kernel)(*arrays)
    exact = both(wanted)(*[x.astype(jnp.float32) for x in arrays])
    assert [x.dtype for x in found[0]] == [x.dtype for x in arrays]
    for got, want in zip(*map(jax.tree.leaves, (found, exact)), strict=True):
        got, want = np.asarray(got, np.float32), np.asarray(want)
        error = (near or NEAR[dtype]) * max(1, np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=0, atol=error)


def by_mask(attend):
    def attention(q, k, v, segments, by_distance=None):
        bias = None if by_distance is None else xla.by_positions(by_distance, q.shape[1])
        return attend(q, k, v, attention_mask.mask(segments), bias)

    return attention


def by_window(attend):
    def attention(q, k, v, segments, by_distance=None):
        window = local_attention.window(segments.queries, segments.radius)
        return local_attention.attend(attend, q, k, v, window)

    return attention


def by_flash(q, k, v, segments, by_distance=None):
    wide = None if by_distance is None else by_distance.astype(jnp.float32)
    return gpu_attention.attend(q, k, v, segments, wide, interpret=True)


def by_definition(q, k, v, segments, by_distance=None):
    bias = None if by_distance is None else reference.by_positions(by_distance, q.shape[1])
    return reference.attend(q, k, v, attention_mask.mask(segments), bias)


CUDNN = functools.partial(cudnn.attend, implementation="xla")
ATTENTIONS = {
    "xla": by_mask(xla.attend),
    "tpu": by_mask(tpu.attend),
    "cudnn": by_mask(CUDNN),
    "flash": by_flash,
    "window": by_window(xla.attend),
    "plain window": by_window(reference.attend),
}


def ids(length, packed):
    """Segments [B, L]: whole rows, or several with padding between and after them."""
    if not packed:
        return jnp.ones((BATCH, length), jnp.int32)
    rows = [[1, 2, 3, 0], [1, 1, 4, 4], [2, 0, 1, 1], [1, 2, 1, 2]]
    return jnp.asarray(np.repeat(rows, -(-length // 4), 1)[:, :length], jnp.int32)


ANY = ("xla", "tpu", "cudnn", "flash")
HOW = [("float32", 1), ("bfloat16", 1), ("float32", 4)]  # dtype and devices


DECODER, LAYERS = (114, 114, True, True, None, True), (140, 140, True, False, 2, False)


# 114, 130 and 200 are no multiples of a GPU kernel's tile; windows of 13, 64 and 140 tokens are two
# spans, eight, and two pieces of eight, the second one filled up.
@pytest.mark.parametrize(
    ("kernel", "queries", "keys", "packed", "causal", "radius", "biased", "dtype", "devices"),
    [
        *[(kernel, *DECODER, *how) for kernel in ANY for how in HOW],
        *[("window", *LAYERS, *how) for how in HOW],
        *[("flash", *LAYERS, *how) for how in HOW[1:]],
        *[(kernel, 6, 6, False, False, None, True, "float32", 1) for kernel in ("xla", "tpu")],
        *[(kernel, 64, 130, True, False, None, False, "float32", 1) for kernel in ("tpu", "cudnn")],
        ("xla", 130, 64, True, False, None, True, "float32", 1),
        ("flash", 1, 64, True, False, None, False, "float32", 1),
        ("flash", 50, 200, True, False, None, True, "float32", 1),
        ("flash", 200, 200, True, True, 70, False, "float32", 1),
        *[(kernel, 70, 170, True, True, None, False, "float32", 1) for kernel in ANY],
        ("window", 13, 13, True, False, 2, False, "float32", 1),
        ("plain window", 64, 64, True, False, 2, False, "float32", 1),
    ],
)
def test_attention(kernel, queries, keys, packed, causal, radius, biased, dtype, devices):
    segments = Segments(ids(queries, packed), ids(keys, packed), causal, radius)
    q, k, v = (normal(BATCH, n, HEADS, WIDTH, seed=n, scale=0.5) for n in (queries, keys, keys + 1))
    arrays = [q, k, v[:, :keys], *[normal(HEADS, queries + keys - 1)] * biased]
    same = segments.queries[:, :, None] == segments.keys[:, None]
    distance = np.arange(keys) - np.arange(queries)[:, None]
    same &= (segments.queries > 0)[:, :, None] & ((distance <= keys - queries) | (not causal))
    same &= np.abs(distance) <= (keys + queries if radius is None else radius)
    used = same.any(-1)[:, :, None, None]  # what queries without any key compute is not used
    attend = lambda function: lambda q, k, v, *bias: function(q, k, v, segments, *bias)
    kernel, wanted = attend(ATTENTIONS[kernel]), attend(by_definition)
    assert_same(kernel, wanted, arrays, dtype, devices, used)


@pytest.mark.parametrize("attend", [xla.attend, tpu.attend])
@pytest.mark.parametrize(("scale", "shift", "dtype"), [
    (100.0, 0.0, "float32"),  # beyond what float32's exp can hold
    (0.3, -16.5, "float16"),  # exponentials that are nearly nothing in float16
])  # fmt: skip
def test_exponentials_out_of_range_are_computed_again(attend, scale, shift, dtype):
    q, k, v = (normal(4, n, 2, 8, seed=n) for n in (6, 5, 7))
    arrays = [q * scale, k, v[:, :5], normal(1, 2, 6, 5) + shift]
    out = lambda attend: lambda q, k, v, bias: attend(q, k, v, None, bias)
    assert_same(out(attend), out(reference.attend), arrays, dtype, near=0.01)


@pytest.mark.parametrize("attend", [xla.attend, tpu.attend])
def test_a_fully_masked_row_attends_evenly_and_has_no_gradient(attend):
    q, k, v, bias = normal(4, 6, 2, 8), normal(4, 5, 2, 8), normal(4, 5, 2, 8), normal(1, 2, 6, 5)
    mask = jnp.ones((4, 1, 6, 5), bool).at[1, :, 2].set(False)
    np.testing.assert_allclose(attend(q, k, v, mask, bias)[1, 2], v[1].mean(0), rtol=1e-5)
    loss = lambda q, k, v, bias: attend(q, k, v, mask, bias)[1, 2].sum()
    for gradient in jax.grad(loss, (0, 1, 3))(q, k, v, bias):
        np.testing.assert_array_equal(gradient, 0)


@pytest.mark.parametrize("dtype", NEAR)
def test_what_attention_keeps_for_its_gradient_is_not_rounded_once_more(dtype):
    arrays = [normal(2, 8, 2, 4, seed=n).astype(dtype) for n in range(3)]
    attend = lambda *qkv: xla.attend(*qkv, None, None).astype(jnp.float32).sum()
    step = jax.grad(jax.checkpoint(attend, policy=select.REMAT["minimal"]), (0, 1, 2))
    assert "reduce_precision" not in str(jax.make_jaxpr(step)(*arrays))


@pytest.mark.parametrize("near", [0, 4 * 2 * 16 * 16 * 2, 1e9])  # one head at a time, two, all
@pytest.mark.parametrize("devices", [1, 8])
def test_heads_take_turns(monkeypatch, near, devices):
    monkeypatch.setattr(tpu, "CMEM_BYTES", near)
    mask = jnp.asarray(np.random.default_rng(1).random((8, 1, 16, 16)) < 0.7).at[..., 0].set(True)
    arrays = [*(normal(8, 16, 4, 8, seed=n) for n in range(3)), normal(1, 4, 16, 16)]
    out = lambda attend: lambda q, k, v, bias: attend(q, k, v, mask, bias)
    assert_same(out(tpu.attend), out(reference.attend), arrays, devices=devices)


@pytest.mark.parametrize("attend", [xla.attend, tpu.attend])
def test_heads_are_not_moved_between_devices(monkeypatch, attend):
    """Nor is there a collective in a loop: processes would not agree on the order."""
    monkeypatch.setattr(tpu, "CMEM_BYTES", 0)
    partitioner = PjitPartitioner(2, devices=jax.devices()[:4])
    by_rows_and_heads = NamedSharding(partitioner.mesh, PartitionSpec("data", None, "model"))
    by_heads = NamedSharding(partitioner.mesh, PartitionSpec(None, "model"))
    heads = jax.ShapeDtypeStruct((8, 64, 4, 16), jnp.float32, sharding=by_rows_and_heads)
    bias = jax.ShapeDtypeStruct((1, 4, 64, 64), jnp.float32, sharding=by_heads)
    loss = lambda q, k, v, bias: attend(q, k, v, None, bias).sum()
    with partitioner.activations():
        gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))
        program = gradients.lower(heads, heads, heads, bias).compile().as_text()
    assert "all-reduce" in program
    for moving in ("all-gather", "all-to-all", "collective-permute"):
        assert moving not in program
    bodies = re.findall(r"body=%?([\w.\-]+)", program)
    assert bodies or attend is xla.attend
    for body in bodies:
        found = re.search(rf"^%?{re.escape(body)} \(.*?^}}", program, re.MULTILINE | re.DOTALL)
        assert found is not None
        assert "all-reduce" not in found[0]


@pytest.mark.parametrize(
    ("activations", "biased"), [((jax.nn.relu,), True), ((jax.nn.gelu, lambda x: x), False)]
)
@pytest.mark.parametrize(
    ("dropped", "dtype", "devices"),
    [(False, "float32", 1), (True, "float32", 1), (True, "bfloat16", 1), (True, "float32", 4)],
)
def test_feed_forward(activations, biased, dropped, dtype, devices):
    keep = jnp.asarray(np.random.default_rng(0).random((4, 1, 6)) < 0.5) * 2.0 if dropped else None
    many = len(activations)
    arrays = [normal(4, 3, 8), normal(6, 8), *[normal(8, 6, seed=n) for n in range(many)]]
    arrays += [normal(6, seed=n) for n in range(many)] if biased else []

    def of(feed_forward):
        def out(x, wo, *inner):
            wi, bias = inner[:many], inner[many:] or None
            factor = None if keep is None else keep.astype(x.dtype)
            return feed_forward(activations, x, factor, wi, wo, bias)

        return out

    assert_same(of(xla.feed_forward), of(reference.feed_forward), arrays, dtype, devices)


# The width is a power of 2 or not; the programs of a GPU's gradient have one row each, or many.
@pytest.mark.parametrize(
    ("kernel", "shape", "added", "dtype", "devices"),
    [
        *[(kernel, (4, 5, 128), True, *how) for kernel in ("xla", "gpu") for how in HOW],
        *[(kernel, (4, 3, 96), False, "float32", 1) for kernel in ("xla", "gpu")],
        ("gpu in few programs", (4, 3, 96), True, "float32", 1),
        ("gpu in few programs", (4, 5, 128), False, "bfloat16", 1),
    ],
)
def test_rms_norm(monkeypatch, kernel, shape, added, dtype, devices):
    if kernel == "gpu in few programs":
        monkeypatch.setattr(gpu_norm, "PROGRAMS", 4)
    by_gpu = functools.partial(gpu_norm.rms_norm, interpret=True)
    arrays = [normal(shape[-1]), normal(*shape, seed=1), *[normal(*shape, seed=2)] * added]

    def of(norm):
        return lambda scale, x, y=None: norm(x, y, scale, 1e-6)

    assert_same(of(xla.rms_norm if kernel == "xla" else by_gpu), of(reference.rms_norm), arrays,
                dtype, devices)  # fmt: skip


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layer_norm(biased, dtype):
    arrays = [normal(2, 3, 8) + 3, normal(8, seed=1), *[normal(8, seed=2)] * biased]
    of = lambda norm: lambda x, scale, bias=None: norm(x, scale, bias, 1e-5)
    assert_same(of(xla.layer_norm), of(reference.layer_norm), arrays, dtype)


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize(("dtype", "devices"), HOW)
def test_dense(wide, dtype, devices):
    of = lambda dense: lambda x, kernel: dense(x, kernel, jnp.float32 if wide else None)
    arrays = normal(4, 3, 8, scale=0.5), normal(8, 6, scale=0.5)
    assert_same(of(xla.dense), of(reference.dense), arrays, dtype, devices)
    assert of(xla.dense)(*(x.astype(dtype) for x in arrays)).dtype == ("float32" if wide else dtype)


def test_float32_results_have_gradients_multiplied_in_bfloat16():
    gradients = jax.grad(lambda x, w: jnp.sin(xla.dense(x, w, jnp.float32)).sum(), (0, 1))
    arrays = normal(2, 3, 4).astype(jnp.bfloat16), normal(4, 5).astype(jnp.bfloat16)
    lines = jax.jit(gradients).lower(*arrays).as_text().splitlines()
    factors = [line.rsplit(" : ", 1)[1].split("->")[0] for line in lines if "dot_general" in line]
    assert len(factors) == 3
    assert all(pair.count("xbf16>") == 2 for pair in factors), factors


@pytest.mark.parametrize("rows", [2, xla.FEW, xla.FEW + 1, 50])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_lookup(rows, dtype):
    chosen = jnp.asarray(np.random.default_rng(0).integers(0, rows, (3, 7)), jnp.int32)
    of = lambda lookup: lambda table: lookup(table, chosen)
    assert_same(of(xla.lookup), of(reference.lookup), [normal(rows, 16)], dtype)
    beyond = xla.lookup(jnp.ones((rows, 2)), jnp.array([rows - 1, rows]))
    np.testing.assert_array_equal(jnp.isnan(beyond[:, 0]), [False, True])


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 4), (5, 5), (3, 7), (6, 2)])
def test_by_positions(queries, keys):
    of = lambda by_positions: lambda bias: by_positions(bias, queries)
    assert_same(of(xla.by_positions), of(reference.by_positions), [normal(2, queries + keys - 1)])


def test_gelu_in_bfloat16_is_exact_to_its_rounding():
    x = jnp.linspace(-12, 12, 4801).astype(jnp.bfloat16)
    wide = x.astype(jnp.float32)
    slopes = lambda f, x: jax.vmap(jax.grad(f))(x).astype(jnp.float32)
    exact = reference.gelu
    np.testing.assert_allclose(xla.gelu(x).astype(jnp.float32), exact(wide), rtol=6e-3, atol=1e-5)
    np.testing.assert_allclose(slopes(xla.gelu, x), slopes(exact, wide), rtol=6e-3, atol=2e-3)
    np.testing.assert_array_equal(xla.gelu(wide), exact(wide))


@pytest.mark.parametrize("shift", [0.0, 100.0, -200.0, 1e4])
def test_log_normalizer(shift):
    arrays = [normal(2, 3, 50, scale=3) + shift]
    of = lambda normalizer: lambda logits: normalizer(logits) - shift
    near = 1e-6 * max(100, shift)  # as float32 counts the logits
    assert_same(of(xla.log_normalizer), of(reference.log_normalizer), arrays, near=near)


@pytest.mark.parametrize("sums", ["a row of a table", "a table of two rows", "a scale"])
def test_gradients_of_many_tokens_are_not_added_up_in_bfloat16(sums):
    if sums == "a scale":
        x = jnp.abs(normal(5000, 64)).astype(jnp.bfloat16)
        scale = lambda scale: xla.rms_norm(x, None, scale, 1e-6)[1].astype(jnp.float32).sum()
        found = jax.grad(scale)(jnp.ones(64, jnp.bfloat16))
        normed = xla.rms_norm(x, None, jnp.ones(64, jnp.bfloat16), 1e-6)[1]
        wanted = np.asarray(normed, np.float64).sum(0)
    else:
        table = jnp.zeros((2 if "two" in sums else 50, 4), jnp.bfloat16)
        tokens = jnp.ones((4, 1024), jnp.int32)
        found = jax.grad(lambda table: xla.lookup(table, tokens).sum())(table)[1]
        wanted = 4096.0
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=2**-8)
