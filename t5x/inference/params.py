"""Restores a model's parameters, without the optimizer, for inference."""

from typing import Any

import jax

from common.errors import UserError
from t5x.array_types import Params
from t5x.checkpointing.config import RestoreCheckpointConfig
from t5x.checkpointing.layer_stacking import stack_layers
from t5x.checkpointing.restore import restore
from t5x.partitioning import PjitPartitioner, gathered
from t5x.train_state import initial_state, state_specs, to_disk


class ParamsRestorer:
    """Restores parameters from one or several checkpoints.

    `fallback_init_rng` is the seed for parameters that a checkpoint lacks. Raise UserError if `cfg`
    allows missing parameters and there is no seed.
    """

    def __init__(
        self,
        model: Any,
        partitioner: PjitPartitioner,
        cfg: RestoreCheckpointConfig,
        fallback_init_rng: int | None = None,
    ):
        if cfg.fallback_to_scratch and fallback_init_rng is None:
            raise UserError(
                "RestoreCheckpointConfig.fallback_to_scratch",
                True,
                "and fallback_init_rng is None, so missing parameters cannot be initialized",
                "set fallback_init_rng to a number",
            )
        self.model, self.cfg, self.seed = model, cfg, fallback_init_rng
        self.specs = state_specs(model, partitioner)
        shardings = jax.tree.map(
            gathered, self.specs.shardings.params
        )  # as `Predictor` expects them
        self._stack = jax.jit(stack_layers, out_shardings=shardings)

    def __call__(self, path: str) -> tuple[Params, int]:
        """Return the parameters of the checkpoint `path` and its step, or raise UserError."""
        specs = {"target": self.specs.on_disk["target"]}
        seed = self.seed

        def initial() -> dict[str, Any]:
            fresh = initial_state(self.model, self.specs, jax.random.key(seed or 0))
            return {"target": to_disk(fresh, self.specs)["target"]}

        restored = restore(path, specs, self.cfg, initial=None if seed is None else initial)
        return self._stack(restored.state["target"]), restored.step
