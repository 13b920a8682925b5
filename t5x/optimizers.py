"""What an optimizer is to the trainer, and optax behind it.

An optimizer definition holds no arrays. `axes` is the tree of logical axis names of the
parameters (tuples of str), `"layers"` first where layers are stacked.

  OPTIMIZER = @optimizers.chain()
  optimizers.chain.transformations = [@optax.clip_by_global_norm(), @optax.adamw()]
"""

import abc
from collections.abc import Sequence
from typing import Any

import flax.serialization
import jax
import optax

Tree = Any


class OptimizerDef(abc.ABC):
    """Turns gradients into new parameters."""

    @abc.abstractmethod
    def init(self, params: Tree, axes: Tree) -> Tree:
        """The state before step 0, one subtree a parameter or an optax state."""

    @abc.abstractmethod
    def update(
        self,
        grads: Tree,
        param_states: Tree,
        params: Tree,
        axes: Tree,
        step: jax.Array,
        learning_rate: jax.Array,
    ) -> tuple[Tree, Tree]:
        """New parameters and new state; `step` counts the updates applied before this one."""

    @abc.abstractmethod
    def state_axes(self, params: Tree, axes: Tree) -> Tree:
        """Logical axes (tuples, None for unsharded dimensions) of every array of the state.

        `params` need only have shapes.
        """


class OptaxOptimizer(OptimizerDef):
    """An optax transformation; its learning rate is its own, `learning_rate_fn` is not used."""

    def __init__(self, transformation: optax.GradientTransformation):
        self.transformation = transformation

    def init(self, params: Tree, axes: Tree) -> Tree:
        """The optax state."""
        return self.transformation.init(params)

    def update(self, grads, param_states, params, axes, step, learning_rate):
        """Applies the transformation."""
        updates, param_states = self.transformation.update(grads, param_states, params)
        return optax.apply_updates(params, updates), param_states

    def state_axes(self, params: Tree, axes: Tree) -> Tree:
        """Moments lie as their parameters do, everything else is replicated."""
        structure = jax.tree.structure(params)
        is_params = lambda x: jax.tree.structure(x) == structure
        return jax.tree.map(
            lambda x: axes if is_params(x) else (None,) * x.ndim,
            jax.eval_shape(self.transformation.init, params),
            is_leaf=is_params,
        )


def chain(transformations: Sequence[optax.GradientTransformation]) -> OptimizerDef:
    """Applies optax transformations in order."""
    return OptaxOptimizer(optax.chain(*transformations))


def to_dict(param_states: Tree) -> dict:
    """Optimizer state as nested dicts with string keys, for the disk."""
    return flax.serialization.to_state_dict(param_states)


def from_dict(like: Tree, state: dict) -> Tree:
    """The inverse of `to_dict`, with the structure of `like`."""
    return flax.serialization.from_state_dict(like, state)
