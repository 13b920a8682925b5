"""Rotary positions (Su et al. 2021, arXiv 2104.09864), the halves of a head as pairs.

    angles = rotary.angles(positions_BL, head_dim, theta=160_000.0)
    q_BLHK, k_BLHK = (rotary.rotate(x, *angles) for x in (q_BLHK, k_BLHK))

Products of queries and keys then depend on the distance of their positions only. Shapes: B batch,
L length, H heads, K head_dim.
"""

import jax
import jax.numpy as jnp
import numpy as np

Angles = tuple[jax.Array, jax.Array]  # cosines and sines, float32 [B, L, 1, K]


def angles(positions_BL: jax.Array, head_dim: int, theta: float) -> Angles:
    """Return cosines and sines, float32 [B, L, 1, K], of int32 positions.

    Dimensions i and i + K/2 turn by `theta`^(-2i/K) a position.
    """
    exponents = jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim
    turns = positions_BL[..., None, None].astype(jnp.float32) / theta**exponents
    turns = jnp.concatenate([turns, turns], -1)
    return jnp.cos(turns), jnp.sin(turns)


@jax.custom_vjp
def rotate(x_BLHK: jax.Array, cosines: jax.Array, sines: jax.Array) -> jax.Array:
    """Return `x_BLHK` turned by `angles`; arithmetic in float32, the dtype is kept.

    `cosines` and `sines` have no gradient.
    """
    # A TPU swaps the halves of a head by a product, which is exact, in half the cycles of slices.
    swap = jnp.asarray(_swap(x_BLHK.shape[-1]), x_BLHK.dtype)
    exact = jax.lax.Precision.HIGHEST
    swapped = jnp.einsum("BLHK,KJ->BLHJ", x_BLHK, swap, precision=exact).astype(jnp.float32)
    return (x_BLHK.astype(jnp.float32) * cosines + swapped * sines).astype(x_BLHK.dtype)


def _swap(size: int) -> np.ndarray:
    """Return the matrix [K, K] that maps halves (a, b) of a vector to (-b, a)."""
    half = np.eye(size // 2, dtype=np.float32)
    zero = np.zeros_like(half)
    return np.block([[zero, half], [-half, zero]])


def _keep_angles(x_BLHK, cosines, sines):
    return rotate(x_BLHK, cosines, sines), (cosines, sines)


def _turn_back(angles, gradient_BLHK):
    cosines, sines = angles
    return rotate(gradient_BLHK, cosines, -sines), None, None


rotate.defvjp(_keep_angles, _turn_back)
