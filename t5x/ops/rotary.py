"""Rotary positions (Su et al. 2021, arXiv 2104.09864), the halves of a head as pairs.

    angles = rotary.angles(positions_BL, head_dim, theta=160_000.0)
    q_BLHK, k_BLHK = (rotary.rotate(x, *angles) for x in (q_BLHK, k_BLHK))

Products of queries and keys then depend on the distance of their positions only. Shapes: B batch,
L length, H heads, K head_dim.
"""

import jax
import jax.numpy as jnp


def angles(positions_BL: jax.Array, head_dim: int, theta: float) -> tuple[jax.Array, jax.Array]:
    """Return cosines and sines, float32 [B, L, 1, K], of int32 positions.

    Dimensions i and i + K/2 turn by `theta`^(-2i/K) a position.
    """
    exponents = jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim
    turns = positions_BL[..., None, None].astype(jnp.float32) / theta**exponents
    turns = jnp.concatenate([turns, turns], -1)
    return jnp.cos(turns), jnp.sin(turns)


def rotate(x_BLHK: jax.Array, cosines: jax.Array, sines: jax.Array) -> jax.Array:
    """Return `x_BLHK` turned by `angles`; arithmetic in float32, the dtype is kept."""
    x = x_BLHK.astype(jnp.float32)
    first, second = jnp.split(x, 2, -1)
    return (x * cosines + jnp.concatenate([-second, first], -1) * sines).astype(x_BLHK.dtype)
