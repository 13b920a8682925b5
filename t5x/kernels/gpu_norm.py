"""The root-mean-square norm (Zhang and Sennrich 2019) of a sum, statistics in float32.

  total_BID, normed_BID = gpu_norm.rms_norm(x_BID, y_BID, scale_D, 1e-6)

Kernels for NVIDIA GPUs. One adds and normalizes, and one computes the gradient from the sum and one
number a row. XLA reads the rows once for the statistics and once more for the rest.

Where `interpret`, the kernels run on any platform, slowly, for tests.

Shapes: B batch, I length, D features, N rows of all examples.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from t5x.partitioning import per_device

ROWS = 1  # rows that one warp reads at a time
PROGRAMS = 4096  # number of programs that share the rows of a gradient


def rms_norm(
    x_BID: jax.Array,
    y_BID: jax.Array | None,
    scale_D: jax.Array,
    epsilon: float,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """See `reference.rms_norm`."""
    terms = (x_BID,) if y_BID is None else (x_BID, y_BID)

    def on_device(scale_D, *terms):
        flat = tuple(x.reshape(-1, x.shape[-1]) for x in terms)
        return tuple(
            x.reshape(terms[0].shape) for x in _norm_sum(epsilon, interpret, flat, scale_D)
        )

    axes = [(None,), *[("batch", None, None)] * len(terms)]
    return per_device(on_device, axes, ("batch", None, None))(scale_D, *terms)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _norm_sum(epsilon: float, interpret: bool, terms_ND, scale_D):
    return _forward(epsilon, interpret, terms_ND, scale_D)[0]


def _forward(epsilon, interpret, terms_ND, scale_D):
    like = terms_ND[0]
    rows = jax.ShapeDtypeStruct(like.shape[:1], jnp.float32)
    total, normed, inverse = _call(
        interpret,
        functools.partial(_forward_kernel, epsilon, *like.shape),
        pl.cdiv(len(like), ROWS),
        (scale_D, *terms_ND),
        [like, jax.ShapeDtypeStruct(like.shape, scale_D.dtype), rows],
    )
    return (total, normed), (total, scale_D, inverse, len(terms_ND))


def _backward(_, interpret, residuals, gradients):
    total, scale_D, inverse, terms = residuals
    rows, width = total.shape
    programs = min(PROGRAMS, pl.cdiv(rows, ROWS))
    turns = pl.cdiv(rows, ROWS * programs)
    d_total, d_scales = _call(
        interpret,
        functools.partial(_backward_kernel, rows, width, turns),
        programs,
        (scale_D, total, inverse, *gradients),
        [total, jax.ShapeDtypeStruct((programs, _padded(width)), jnp.float32)],
    )
    return (d_total,) * terms, d_scales.sum(0)[:width].astype(scale_D.dtype)


_norm_sum.defvjp(_forward, _backward)


def _call(interpret: bool, kernel, programs: int, args, results):
    return pl.pallas_call(
        kernel,
        grid=(programs,),
        in_specs=[_entire(x) for x in args],
        out_specs=[_entire(x) for x in results],
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in results],
        compiler_params=plgpu.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
    )(*args)


def _entire(x) -> pl.BlockSpec:
    return pl.BlockSpec(x.shape, lambda _: (0,) * len(x.shape))


def _forward_kernel(epsilon, rows, width, scale, *refs):
    *terms, total, normed, inverse = refs
    program = pl.program_id(0)
    at, mask = _block(program, rows, width)
    load = lambda ref: plgpu.load(ref.at[at], mask=mask, other=0.0).astype(jnp.float32)
    x = functools.reduce(jnp.add, map(load, terms)).astype(total.dtype)
    wide = x.astype(jnp.float32)
    inverse_R = jax.lax.rsqrt((wide * wide).sum(1) / width + epsilon)
    y = (wide * inverse_R[:, None]).astype(normed.dtype) * _scale(scale, width, program)[None]
    plgpu.store(total.at[at], x, mask=mask)
    plgpu.store(normed.at[at], y, mask=mask)
    plgpu.store(inverse.at[at[0]], inverse_R, mask=_row(at[0], rows))


def _backward_kernel(rows, width, turns, scale, total, inverse, d_total, d_normed, d_x, d_scale):
    program = pl.program_id(0)
    scale_D = _scale(scale, width, program).astype(jnp.float32)

    def turn(n, d_scales):
        at, mask = _block(program * turns + n, rows, width)
        load = lambda ref: plgpu.load(ref.at[at], mask=mask, other=0.0).astype(jnp.float32)
        inverse_R1 = plgpu.load(inverse.at[at[0]], mask=_row(at[0], rows), other=0.0)[:, None]
        normed, d_out = load(total) * inverse_R1, load(d_normed)
        d_normal = d_out * scale_D[None]
        mean_R1 = (d_normal * normed).sum(1)[:, None] / width
        d_sum = load(d_total) + inverse_R1 * (d_normal - normed * mean_R1)
        plgpu.store(d_x.at[at], d_sum.astype(d_x.dtype), mask=mask)
        return d_scales + d_out * normed

    d_scales = jnp.zeros((ROWS, _padded(width)), jnp.float32)
    d_scale[program, :] = jax.lax.fori_loop(0, turns, turn, d_scales).sum(0)


def _padded(width: int) -> int:
    return pl.next_power_of_2(width)  # Triton's arrays have such lengths only


def _block(group, rows: int, width: int):
    """Return the index of a group of rows in [N, D], and where the array has it."""
    at = pl.ds(group * ROWS, ROWS), pl.ds(_zero(group), _padded(width))
    column = jax.lax.broadcasted_iota(jnp.int32, (ROWS, _padded(width)), 1)
    row = group * ROWS + jax.lax.broadcasted_iota(jnp.int32, (ROWS, _padded(width)), 0)
    return at, (row < rows) & (column < width)


def _zero(group):
    return group * 0  # computed: JAX refuses a constant slice that ends beyond the array


def _row(at, rows: int):
    return at.start + jax.lax.iota(jnp.int32, ROWS) < rows


def _scale(ref, width: int, program):
    column, at = jax.lax.iota(jnp.int32, _padded(width)), pl.ds(_zero(program), _padded(width))
    return plgpu.load(ref.at[at], mask=column < width, other=0.0)
