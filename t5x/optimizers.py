"""The optimizer interface of the trainer, and optax optimizers behind it.

An optimizer definition holds no arrays. `axes` is the tree of logical axis names of the
parameters (tuples of str), `"layers"` first where layers are stacked.

  OPTIMIZER = @optimizers.adamw()                    # its rate: trainer.Trainer.learning_rate_fn
  optimizers.adamw:
    weight_decay = 0.01
    clip_global_norm = 1.0

  OPTIMIZER = @optimizers.chain()                    # its rate: its own
  optimizers.chain.transformations = [@optax.clip_by_global_norm(), @optax.adamw()]
"""

import abc
import re
from collections.abc import Callable, Sequence

import flax.serialization
import jax
import optax

from t5x.array_types import PyTree


class OptimizerDef(abc.ABC):
    """Computes new parameters from gradients."""

    @abc.abstractmethod
    def init(self, params: PyTree, axes: PyTree) -> PyTree:
        """Return the state before step 0, one subtree per parameter or an optax state."""

    @abc.abstractmethod
    def update(
        self,
        grads: PyTree,
        param_states: PyTree,
        params: PyTree,
        axes: PyTree,
        step: jax.Array,
        learning_rate: jax.Array,
    ) -> tuple[PyTree, PyTree]:
        """Return new parameters and state; `step` counts the updates before this one."""

    @abc.abstractmethod
    def state_axes(self, params: PyTree, axes: PyTree) -> PyTree:
        """Return logical axes (tuples, None for unsharded dimensions) of every array of the state.

        `params` need only have shapes.
        """


class OptaxOptimizer(OptimizerDef):
    """An optax transformation with its own learning rate; `learning_rate_fn` is not used."""

    def __init__(self, transformation: optax.GradientTransformation):
        self.transformation = transformation

    def init(self, params: PyTree, axes: PyTree) -> PyTree:
        """Return the initial optax state."""
        return self.transformation.init(params)

    def update(self, grads, param_states, params, axes, step, learning_rate):
        """Apply the transformation."""
        updates, param_states = self.transformation.update(grads, param_states, params)
        return optax.apply_updates(params, updates), param_states

    def state_axes(self, params: PyTree, axes: PyTree) -> PyTree:
        """Return axes: moments have those of their parameters, all else is replicated."""
        structure = jax.tree.structure(params)
        # jaxlib ships no type of PyTreeDef.
        is_params = lambda x: jax.tree.structure(x) == structure  # type: ignore[operator]
        return jax.tree.map(
            lambda x: axes if is_params(x) else (None,) * x.ndim,
            jax.eval_shape(self.transformation.init, params),
            is_leaf=is_params,
        )


def chain(transformations: Sequence[optax.GradientTransformation]) -> OptimizerDef:
    """Return an optimizer that applies optax transformations in order."""
    return OptaxOptimizer(optax.chain(*transformations))


class AdamW(OptaxOptimizer):
    """Adam with decoupled decay at the trainer's rate; see `adamw`. Its state is Adam's."""

    def __init__(self, adam, decays: Callable[[PyTree], PyTree], decay: float, clip: float | None):
        super().__init__(adam)
        self.decays, self.decay, self.clip = decays, decay, clip

    def update(self, grads, param_states, params, axes, step, learning_rate):
        """Apply one step."""
        if self.clip is not None:
            grads, _ = optax.clip_by_global_norm(self.clip).update(grads, optax.EmptyState())
        updates, param_states = self.transformation.update(grads, param_states, params)

        def applied(param, update, decays):
            change = update + self.decay * param if decays else update
            return (param - learning_rate * change).astype(param.dtype)

        return jax.tree.map(applied, params, updates, self.decays(params)), param_states


def adamw(
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.01,
    no_decay: Sequence[str] = ("scale", "rel_embedding"),
    clip_global_norm: float | None = 1.0,
) -> OptimizerDef:
    """Return AdamW (Loshchilov and Hutter 2019) at the rate `trainer.Trainer.learning_rate_fn`.

    Args:
      beta1: decay of the gradient's mean.
      beta2: decay of the squared gradient's mean.
      epsilon: added to the root of the latter.
      weight_decay: share of a parameter lost per step, times the rate.
      no_decay: regular expressions; parameters whose path matches one do not decay, by default
        norms and position biases.
      clip_global_norm: limit of the norm of all gradients together, None for none.

    Raises:
      ValueError: a number out of range, or an invalid regular expression.
    """
    for name, value, fits in (
        ("beta1", beta1, 0 <= beta1 < 1),
        ("beta2", beta2, 0 <= beta2 < 1),
        ("epsilon", epsilon, epsilon > 0),
        ("weight_decay", weight_decay, weight_decay >= 0),
        ("clip_global_norm", clip_global_norm, clip_global_norm is None or clip_global_norm > 0),
    ):
        if not fits:
            limits = {"beta1": "0 or more and below 1", "beta2": "0 or more and below 1"}
            least = "0 or more" if name == "weight_decay" else "more than 0"
            raise ValueError(
                f"optimizers.adamw.{name} is {value}; set it to {limits.get(name, least)}."
            )
    adam = optax.scale_by_adam(beta1, beta2, epsilon)
    return AdamW(adam, decay_mask(no_decay), weight_decay, clip_global_norm)


def decay_mask(no_decay: Sequence[str]) -> Callable[[PyTree], PyTree]:
    """Return the function from parameters to True where they decay.

    Raises:
      ValueError: a regular expression is invalid.
    """
    try:
        patterns = [re.compile(pattern) for pattern in no_decay]
    except re.error as error:
        raise ValueError(
            f"optimizers.adamw.no_decay has {error.pattern!r}, which is not a regular expression: "
            f"{error}."
        ) from error

    def decays(path, _) -> bool:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return not any(pattern.search(name) for pattern in patterns)

    return lambda params: jax.tree_util.tree_map_with_path(decays, params)


def to_dict(param_states: PyTree) -> dict:
    """Return optimizer state as nested dicts with string keys, for checkpoints."""
    return flax.serialization.to_state_dict(param_states)


def from_dict(like: PyTree, state: dict) -> PyTree:
    """Return the state of a `to_dict` result, with the structure of `like`."""
    return flax.serialization.from_state_dict(like, state)
