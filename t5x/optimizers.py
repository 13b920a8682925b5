"""The optimizer interface of the trainer, and optax optimizers behind it.

An optimizer definition holds no arrays. `axes` is the tree of logical axis names of the
parameters (tuples of str), `"layers"` first where layers are stacked.

  OPTIMIZER = @optimizers.adamw()                    # its rate: trainer.Trainer.learning_rate_fn
  optimizers.adamw:
    weight_decay = 0.01
    clip_global_norm = 1.0

  OPTIMIZER = @optimizers.muon()                     # steps relative to each parameter's size
  optimizers.muon.weight_decay = 0.0

  OPTIMIZER = @optimizers.chain()                    # its rate: its own
  optimizers.chain.transformations = [@optax.clip_by_global_norm(), @optax.adamw()]
"""

import abc
import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib

from common.errors import UserError, nearest
from t5x.array_types import PyTree
from t5x.kernels.orthogonal import orthogonalize
from t5x.partitioning import constrain
from t5x.schedules import UsualRates

# Parameters that do not decay, in one model or another.
_NORMS_AND_BIASES = ("scale", "bias", "rel_embedding")


class OptimizerDef(abc.ABC):
    """Computes new parameters from gradients.

    An optional attribute `usual_rates` has the `UsualRates` that suit it, and `has_own_rate` says
    that `update` does not use the `learning_rate` that it gets.
    """

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
        """Return logical axes, None where unsharded, of the state's arrays; `params` are shapes."""


@dataclasses.dataclass(eq=False)
class OptaxOptimizer(OptimizerDef):
    """An optax transformation with its own learning rate; `learning_rate_fn` is not used."""

    transformation: optax.GradientTransformation
    has_own_rate = True

    def init(self, params: PyTree, axes: PyTree) -> PyTree:
        """Return the initial optax state."""
        return self.transformation.init(params)

    def update(self, grads, param_states, params, axes, step, learning_rate):
        """Apply the transformation."""
        updates, param_states = self.transformation.update(grads, param_states, params)
        return optax.apply_updates(params, updates), param_states

    def state_axes(self, params: PyTree, axes: PyTree) -> PyTree:
        """Return axes: moments have their parameters' axes, all else is replicated."""
        return moment_axes(self.transformation, params, axes)


def chain(transformations: Sequence[optax.GradientTransformation]) -> OptimizerDef:
    """Return an optimizer that applies optax transformations in order."""
    return OptaxOptimizer(optax.chain(*transformations))


@dataclasses.dataclass(eq=False)
class DecoupledOptimizer(OptimizerDef):
    """Unscaled steps from optax, times the trainer's rate, with decoupled weight decay."""

    # Axes of the parameters to the optax transformation, whose updates are to be subtracted.
    direction: Callable[[PyTree], optax.GradientTransformation]
    decays: Callable[[PyTree], PyTree]  # parameters to a tree of True where they decay
    decay: float  # share of a parameter lost per step, times the rate
    clip: float | None  # limit of the norm of all gradients together, None for none
    # None for steps of absolute size; a number for steps relative to each parameter's root mean
    # square (of each layer's, where layers are stacked), which counts as at least this.
    least_scale: float | None = None
    matrix_rate: float = 1.0  # multiplies the steps of matrices, see `matrix_dimensions`
    usual_rates: UsualRates | None = None

    def init(self, params: PyTree, axes: PyTree) -> PyTree:
        """Return the initial optax state, or raise UserError for an unknown `no_decay`."""
        self.decays(params)
        return self.direction(axes).init(params)

    def update(self, grads, param_states, params, axes, step, learning_rate):
        """Apply one step."""
        if self.clip is not None:
            grads, _ = optax.clip_by_global_norm(self.clip).update(grads, optax.EmptyState())
        updates, param_states = self.direction(axes).update(grads, param_states, params)

        def applied(param, update, decays, axes):
            if self.least_scale is not None:
                averaged = tuple(i for i, axis in enumerate(axes) if axis != "layers")
                rms = jnp.sqrt(jnp.mean(jnp.square(param), axis=averaged, keepdims=True))
                update = update * jnp.maximum(rms, self.least_scale)
            if self.matrix_rate != 1 and matrix_dimensions(axes) is not None:
                update = update * self.matrix_rate
            change = update + self.decay * param if decays else update
            return (param - learning_rate * change).astype(param.dtype)

        return jax.tree.map(applied, params, updates, self.decays(params), axes), param_states

    def state_axes(self, params: PyTree, axes: PyTree) -> PyTree:
        """Return axes: moments have their parameters' axes, all else is replicated."""
        return moment_axes(self.direction(axes), params, axes)


def adamw(
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.01,
    no_decay: Sequence[str] = ("scale", "rel_embedding"),
    clip_global_norm: float | None = 1.0,
) -> OptimizerDef:
    """Return AdamW (Loshchilov and Hutter 2019) at the rate `trainer.Trainer.learning_rate_fn`.

    `beta1` and `beta2` are the decay of the gradient's mean and of its square's; `epsilon` is added
    to the root of the latter. `weight_decay` is the share of a parameter lost per step, times the
    rate; parameters whose path matches a regular expression of `no_decay` do not decay, by default
    norms and position biases. `clip_global_norm` limits the norm of all gradients together. Ranges
    are in `t5x.settings.limits`. Raise UserError for an invalid regular expression.
    """
    adam = optax.scale_by_adam(beta1, beta2, epsilon)
    decays = decay_mask(no_decay)
    rates = UsualRates("optimizers.adamw", 1e-6, 0.02)
    return DecoupledOptimizer(
        lambda axes: adam, decays, weight_decay, clip_global_norm, usual_rates=rates
    )


def adamw_scaled(
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    weight_decay: float = 0.0,
    no_decay: Sequence[str] = ("scale", "rel_embedding"),
    clip_global_norm: float | None = 1.0,
    least_scale: float = 1e-3,
    matrix_rate: float = 1.0,
) -> OptimizerDef:
    """Return AdamW with steps relative to each parameter's size, as nanoT5 and FAT5 train T5.

    T5's embeddings begin with deviation 1 and its kernels far below, so that no absolute step fits
    both. Nawrot 2023 (nanoT5, arXiv 2309.02373, section 3) multiplies the step by the root mean
    square of the parameter, which counts as `least_scale` at least, as Adafactor does. Steps of
    matrices (all but embeddings, logits, norms and biases) are also multiplied by `matrix_rate`.
    For other settings and errors see `adamw`.
    """
    adam = optax.scale_by_adam(beta1, beta2, epsilon)
    decays = decay_mask(no_decay, "adamw_scaled")
    rates = UsualRates("optimizers.adamw_scaled", 1e-5, 0.5)
    return DecoupledOptimizer(
        lambda axes: adam, decays, weight_decay, clip_global_norm, least_scale, matrix_rate, rates
    )


def muon(
    beta: float = 0.95,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
    no_decay: Sequence[str] = ("scale", "rel_embedding"),
    clip_global_norm: float | None = 1.0,
    least_scale: float = 1e-3,
    newton_schulz_steps: int = 5,
    matrix_rate: float = 0.1,
    must_end: bool = True,
) -> OptimizerDef:
    """Return Muon (Jordan 2024) with steps relative to each parameter's size.

    The momentum of a matrix (`optax.contrib.muon`) is orthogonalized by Newton-Schulz iterations,
    each layer of a stack by itself and on one device of the slice (`t5x.kernels.orthogonal`), and
    brought to a root mean square of 1 (Liu et al. 2025, arXiv 2502.16982, section 2.2). Embeddings,
    logits, norms and position biases are updated by Adam with Nesterov momentum. Both steps are
    multiplied by the parameter's root mean square and by the rate, and steps of matrices also by
    `matrix_rate`. `beta` is the decay of the momentum of matrices, `epsilon` is also added to the
    norm that a matrix is divided by, and a parameter's root mean square counts as at least
    `least_scale`. With `must_end` a run whose rate does not fall to zero is refused: steps of one
    size leave the noise of single batches in the matrices. For other settings and errors see
    `adamw_scaled`.
    """

    def direction(axes: PyTree) -> optax.GradientTransformation:
        dimensions = jax.tree.map(matrix_dimensions, axes, is_leaf=lambda x: isinstance(x, tuple))
        momentum = optax.contrib.muon(
            -1.0,  # gives what is to be subtracted
            ns_steps=0,  # only divides each matrix by its norm: `orthogonalize` has the iterations
            beta=beta,
            eps=epsilon,
            adam_b1=beta1,
            adam_b2=beta2,
            muon_weight_dimension_numbers=dimensions,
        )

        def update(grads, state, params=None):
            updates, state = momentum.update(grads, state, params)
            return orthogonalized(updates, dimensions, axes, newton_schulz_steps, epsilon), state

        return optax.GradientTransformation(momentum.init, update)

    decays = decay_mask(no_decay, "muon")
    rates = UsualRates("optimizers.muon", 1e-5, 0.5, must_end)
    return DecoupledOptimizer(
        direction, decays, weight_decay, clip_global_norm, least_scale, matrix_rate, rates
    )


def orthogonalized(
    updates: PyTree, dimensions: PyTree, axes: PyTree, steps: int, epsilon: float
) -> PyTree:
    """Return the updates, each matrix made orthogonal with a root mean square of 1.

    `dimensions` come from `matrix_dimensions`; for `steps` and `epsilon` see
    `t5x.kernels.orthogonal`.
    """
    leaves = jax.tree.leaves(updates)
    tree: Any = jax.tree.structure(updates)  # its stubs lack `flatten_up_to`
    numbers, names = tree.flatten_up_to(dimensions), tree.flatten_up_to(axes)
    chosen = [i for i, dims in enumerate(numbers) if dims is not None]
    results = orthogonalize(
        [leaves[i] for i in chosen], [numbers[i] for i in chosen], steps, epsilon
    )
    for i, matrices in zip(chosen, results, strict=True):
        sizes = [math.prod(matrices.shape[d] for d in dims) for dims in numbers[i]]
        leaves[i] = constrain(matrices, *names[i]) * math.sqrt(max(sizes))
    return jax.tree.unflatten(tree, leaves)


def matrix_dimensions(axes: tuple[str | None, ...]) -> optax.contrib.MuonDimensionNumbers | None:
    """Return which dimensions of a parameter are a matrix's rows and columns, None if it has none.

    A kernel maps the dimension `embed` to all others or back, and `layers` counts kernels. A table
    with a row for each token or position does not count as a matrix: its rows are separate maps.
    """
    dims = [i for i, axis in enumerate(axes) if axis != "layers"]
    if len(dims) < 2 or {axes[i] for i in dims} & {"vocab", "relpos_buckets", "length"}:
        return None
    embed = [i for i in dims if axes[i] == "embed"] or dims[:1]
    rows, columns = tuple(embed), tuple(i for i in dims if i not in embed)
    if not columns:
        rows, columns = rows[:1], rows[1:]
    # Orthogonalization is the same for the transposed matrix, so rows and columns may change sides.
    return optax.contrib.MuonDimensionNumbers(rows, columns)


def moment_axes(transformation: optax.GradientTransformation, params: PyTree, axes: PyTree):
    """Return the axes of an optax state: a moment has its parameter's axes, other arrays none.

    A moment is an array with as many dimensions as the parameter whose path ends its own path,
    since a transformation of some parameters keeps a part of the tree.
    """
    is_axes = lambda x: isinstance(x, tuple)
    names = dict(jax.tree_util.tree_flatten_with_path(axes, is_leaf=is_axes)[0])

    def axes_of(path, array):
        axis_names = next((names[path[i:]] for i in range(len(path)) if path[i:] in names), ())
        return axis_names if len(axis_names) == array.ndim else (None,) * array.ndim

    state = jax.eval_shape(transformation.init, params)
    return jax.tree_util.tree_map_with_path(axes_of, state)


def decay_mask(no_decay: Sequence[str], name: str = "adamw") -> Callable[[PyTree], PyTree]:
    """Return a function from parameters to a tree of True where they decay.

    It raises UserError, naming optimizer `name`, for a pattern that no parameter matches, except
    for `_NORMS_AND_BIASES`.
    """
    try:
        patterns = [re.compile(pattern) for pattern in no_decay]
    except re.error as error:
        why = f"has {error.pattern!r}, which is not a regular expression: {error}"
        raise UserError(f"optimizers.{name}.no_decay", why=why) from error

    def mask(params: PyTree) -> PyTree:
        paths, tree = jax.tree_util.tree_flatten_with_path(params)
        names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in paths]
        for pattern in patterns:
            is_default = pattern.pattern in _NORMS_AND_BIASES
            if not is_default and not any(map(pattern.search, names)):
                raise UserError(
                    f"optimizers.{name}.no_decay",
                    why=f"has {pattern.pattern!r}, which matches none of the {len(names)} "
                    f"parameters{nearest(pattern.pattern, names)}",
                    to_set="leave it out, or set it to a regular expression that a parameter's "
                    "path contains",
                )
        decays = [not any(p.search(n) for p in patterns) for n in names]
        return jax.tree.unflatten(tree, decays)

    return mask
