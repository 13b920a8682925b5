"""Sophia, a second-order method of optax, as an optimizer of `benchmarks.optimizers`."""

from collections.abc import Callable
from typing import Any

# The loss of the step that is being traced, as a function of the parameters.
objective: Callable[[Any], Any] | None = None


def sophia(gamma: float = 0.01, matrix_rate: float = 1.0):
    """Return Sophia-H (Liu et al. 2023, arXiv 2305.14342) with steps relative to each parameter.

    optax estimates the diagonal of the Hessian by a derivative in forward mode, which the network's
    own gradients do not have. Here both are taken backwards.
    """
    import jax
    import jax.numpy as jnp
    import optax

    from t5x import optimizers

    def first_key(_):
        return jax.random.PRNGKey(0)  # a state cannot hold a typed key

    def diagonal(_, key, params=None, **__):
        key, signs_key = jax.random.split(key)
        signs = optax.tree.random_like(signs_key, params, jax.random.rademacher, jnp.float32)
        along = lambda params: optax.tree.vdot(jax.grad(objective)(params), signs)
        return jax.tree.map(jnp.multiply, jax.grad(along)(params), signs), key

    estimate = optax.GradientTransformation(first_key, diagonal)
    direction = optax.contrib.sophia(
        -1.0, weight_decay=0.0, gamma=gamma, hessian_diagonal_fn=estimate
    )
    rates = optimizers.UsualRates("sophia", 1e-5, 0.5)
    decays = optimizers.decay_mask((), "sophia")
    return optimizers.DecoupledOptimizer(
        lambda axes: direction, decays, 0.0, 1.0, 1e-3, matrix_rate, rates
    )
