"""How NaN, infinity and outliers are handled: all the rules are here.

A step is bad if its loss or the norm of its gradients is not finite. `trainer.Trainer.bad_steps`:

- 'stop': the run ends with a FloatingPointError. Its checkpoints are sound, see the last rule.
- 'skip': the device drops the step, and an outlier too: a loss per token or a norm that exceeds the
  mean of the last 128 steps taken by more than 6 standard deviations (never, before there are 128).
  Skipped steps are not in the mean, so that an outlier does not make the next one usual. After
  `MOST_SKIPPED` in a row the run ends.
- 'go_back': the loop restores the newest checkpoint and continues with the data that comes next, at
  most `MOST_RETURNS` times to the same one.

A state that is not finite is never saved, whatever the loss was (`t5x.checkpoints`). An action may
end a run for a metric that is not finite (`actions.TerminateOnNanAction`).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import flax.struct
import jax
import jax.numpy as jnp

from common.errors import UserError
from t5x.array_types import Batch, Sums
from t5x.metrics import unnormalized_loss
from t5x.train_state import TrainState

SKIPPED = "skipped"  # sum that is 1 for a step that was skipped
MOST_SKIPPED, MOST_RETURNS = 50, 3
REMEDY = (
    "Lower utils.create_learning_rate_scheduler.base_learning_rate, or set "
    "trainer.Trainer.bad_steps to 'skip' or 'go_back', and start the same command again: it "
    "resumes from the last checkpoint."
)
_WINDOW, _DEVIATIONS = 128, 6.0


def policy(bad_steps: str | None, optimizer: Any) -> str:
    """Return `Trainer.bad_steps` or, where it is None, what the optimizer requests.

    Raise UserError for an unknown one.
    """
    skips = getattr(optimizer, "skip_nan_updates", False)
    chosen = bad_steps or ("skip" if skips else "stop")
    if chosen not in ("stop", "skip", "go_back"):
        raise UserError(
            "trainer.Trainer.bad_steps", bad_steps, to_set="set it to 'stop', 'skip' or 'go_back'"
        )
    return chosen


class Watchman:
    """Reads the sums of every step on the host."""

    def __init__(self):
        self._skipped = 0  # steps in a row

    def check(self, step: int, sums: Mapping[str, Any]) -> bool:
        """Return whether the step was skipped.

        Raise a FloatingPointError if its sums are not finite, or too many steps were skipped.
        """
        loss, norm = float(sums["loss"]), float(sums.get("gradient_norm", 0.0))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise FloatingPointError(
                f"The loss at step {step} is {loss} and its gradients' norm {norm}; no checkpoint "
                f"is written. {REMEDY}"
            )
        was_skipped = bool(sums.get(SKIPPED))
        self._skipped = self._skipped + 1 if was_skipped else 0
        if self._skipped >= MOST_SKIPPED:
            raise FloatingPointError(
                f"The last {self._skipped} steps, to step {step}, were skipped: loss or gradients "
                f"are not finite, or outliers. {REMEDY}"
            )
        return was_skipped


@flax.struct.dataclass
class StepStatistics:
    """Loss per token and gradient norm of the last steps taken, [2, 128], and their number."""

    values_2N: jax.Array
    count: jax.Array

    @classmethod
    def initial(cls) -> "StepStatistics":
        """Return the statistics before the first step."""
        return cls(jnp.zeros((2, _WINDOW), jnp.float32), jnp.zeros((), jnp.int32))

    def accepts(self, values_2: jax.Array) -> jax.Array:
        """Return whether a step with these values is good, bool []."""
        limit_2 = self.values_2N.mean(-1) + _DEVIATIONS * self.values_2N.std(-1)
        usual = (self.count < _WINDOW) | (values_2 <= limit_2).all()
        return jnp.isfinite(values_2).all() & usual

    def add(self, values_2: jax.Array, taken: jax.Array) -> "StepStatistics":
        """Return the statistics including this step, if it was taken."""
        values_2N = self.values_2N.at[:, self.count % _WINDOW].set(values_2)
        count = self.count + taken.astype(jnp.int32)
        return StepStatistics(jnp.where(taken, values_2N, self.values_2N), count)


Carried: TypeAlias = tuple[TrainState, StepStatistics | None]


def skipping_step(
    carried: Carried, batch: Batch, rng: jax.Array, *, step: Callable[..., tuple[TrainState, Sums]]
) -> tuple[Carried, Sums]:
    """Apply `step`, or only count it if it is bad; always apply it without statistics.

    The decision is made on the device, since the devices would have to wait for the host after
    every step. The sums of a skipped step are all 0 but `skipped`.
    """
    state, statistics = carried
    new, sums = step(state, batch, rng)
    if statistics is None:
        return (new, None), sums
    values_2 = jnp.stack([unnormalized_loss(sums), sums["gradient_norm"]])
    taken = statistics.accepts(values_2) & jnp.isfinite(sums["loss"])
    state_after = jax.tree.map(lambda x, old: jnp.where(taken, x, old), new, state)
    sums = {name: jnp.where(taken, value, 0.0) for name, value in sums.items()}
    sums[SKIPPED] = 1.0 - taken.astype(jnp.float32)
    return (state_after.replace(step=new.step), statistics.add(values_2, taken)), sums
