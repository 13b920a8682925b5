"""Sophia's estimate of the curvature."""

import jax.numpy as jnp
import numpy as np

from benchmarks import sophia


def test_the_curvature_of_a_separable_loss_is_exact(monkeypatch):
    weights, params = jnp.array([0.5, 4.0, 9.0]), {"x": jnp.array([1.0, -2.0, 3.0])}
    monkeypatch.setattr(sophia, "objective", lambda p: (weights * p["x"] ** 2).sum())
    direction = sophia.sophia().direction(None)
    grads = {"x": 2 * weights * params["x"]}
    updates, state = direction.update(grads, direction.init(params), params)
    # The first estimate counts 1 - b2 = 0.01 in the mean. The step used none, so it is clipped.
    np.testing.assert_allclose(state[0].nu["x"], 0.01 * 2 * weights, rtol=1e-5)
    np.testing.assert_allclose(updates["x"], [1, -1, 1])
