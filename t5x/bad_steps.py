"""Steps that would do harm are left out, on the device, without the host being asked.

  recent = Recent.begin()
  (state, recent), sums = skipping_step((state, recent), batch, rng, step=train_step_of_the_run)
  sums["skipped"]                        # 1.0: the state is as it was, but for its step

A step does harm if its loss or its gradients' norm is not finite, or lies more than 6 standard
deviations above the mean of the last 128 steps that were taken (none does before there are 128).
Only such steps count in the mean, so an outlier does not make the next one usual.
"""

from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from t5x.train_state import TrainState

SKIPPED = "skipped"
_WINDOW, _DEVIATIONS = 128, 6.0


@flax.struct.dataclass
class Recent:
    """Loss a token and norm of the last steps taken, [2, 128], and how many there have been."""

    figures_2N: jax.Array
    count: jax.Array

    @classmethod
    def begin(cls) -> "Recent":
        """Before the first step."""
        return cls(jnp.zeros((2, _WINDOW), jnp.float32), jnp.zeros((), jnp.int32))

    def expects(self, figures_2: jax.Array) -> jax.Array:
        """Whether a step with such figures may be taken, bool []."""
        limit_2 = self.figures_2N.mean(-1) + _DEVIATIONS * self.figures_2N.std(-1)
        usual = (self.count < _WINDOW) | (figures_2 <= limit_2).all()
        return jnp.isfinite(figures_2).all() & usual

    def after(self, figures_2: jax.Array, taken: jax.Array) -> "Recent":
        """With one step more, if it was taken."""
        figures_2N = self.figures_2N.at[:, self.count % _WINDOW].set(figures_2)
        return Recent(
            jnp.where(taken, figures_2N, self.figures_2N), self.count + taken.astype(jnp.int32)
        )


def skipping_step(
    carried: tuple[TrainState, Recent],
    batch: Mapping[str, jax.Array],
    rng: jax.Array,
    *,
    step: Callable[..., tuple[TrainState, dict[str, jax.Array]]],
) -> tuple[tuple[TrainState, Recent], dict[str, Any]]:
    """`step`, or where it would do harm, nothing but a step counted.

    Returns:
      The state and what is remembered, and the sums, which are all 0 for a step left out, but for
      `skipped`.
    """
    state, recent = carried
    new, sums = step(state, batch, rng)
    tokens = jnp.maximum(sums["target_tokens"], 1.0)
    loss = (sums["cross_ent_loss"] + sums["z_loss"]) / tokens
    figures_2 = jnp.stack([loss, sums["gradient_norm"]])
    taken = recent.expects(figures_2) & jnp.isfinite(sums["loss"])
    kept = jax.tree.map(lambda x, old: jnp.where(taken, x, old), new, state)
    sums = {name: jnp.where(taken, value, 0.0) for name, value in sums.items()}
    sums[SKIPPED] = 1.0 - taken.astype(jnp.float32)
    return (kept.replace(step=new.step), recent.after(figures_2, taken)), sums
