"""Adafactor (Shazeer and Stern 2018) as T5X runs it: relative updates, factored second moments.

Each parameter keeps {m, v, v_row, v_col} in float32; unused ones are placeholders of shape (1,).
Where the logical axes begin with `layers`, every layer is treated as a separate parameter: same
factoring, same clipping, same scale as if the layers were not stacked.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from common.errors import UserError
from t5x.array_types import FLOAT32, PyTree
from t5x.optimizers import OptimizerDef
from t5x.schedules import UsualRates

Dims: TypeAlias = tuple[int, ...]
Axes: TypeAlias = tuple[str | None, ...]
Moments: TypeAlias = dict[str, jax.Array]


class FactorDim(enum.Enum):
    """Role of a dimension in the factored second moment."""

    NONE = "none"
    BATCH = "batch"
    ROW = "row"
    COLUMN = "column"


def standard_logical_factor_rules() -> Mapping[str, FactorDim]:
    """Return the role of each logical axis, for parameters of more than two dimensions.

    A model may lack some of these axes.
    """
    column = ("vocab", "mlp", "heads", "kv", "joined_kv", "length", "mlp_activations")
    upstream_axes = ("q_wi_fused", "o_wo_fused", "multiquery_heads", "kv_fused")
    return {
        **dict.fromkeys((*column, *upstream_axes), FactorDim.COLUMN),
        "embed": FactorDim.ROW,
        "relpos_buckets": FactorDim.NONE,
        "layer_norm_scale": FactorDim.NONE,
        "layers": FactorDim.BATCH,
        "batch": FactorDim.BATCH,
        "stack": FactorDim.BATCH,
    }


@dataclasses.dataclass(frozen=True)
class Factoring:
    """Dimensions over which one parameter is averaged and factored."""

    averaged: Dims  # all but the batch dimensions; root mean squares are over these
    factored: tuple[Dims, Dims] | None  # averaged over in (v_col, v_row)


@dataclasses.dataclass(frozen=True)
class Adafactor(OptimizerDef):
    """Adafactor; the learning rate comes from `trainer.Trainer.learning_rate_fn`."""

    learning_rate: float | None = None  # ignored, with a warning; accepted as in T5X
    factored: bool = True  # keep row and column means of the squared gradient, not all its entries
    multiply_by_parameter_scale: bool = True  # updates relative to the parameter's root mean square
    beta1: float | None = None  # momentum, None for none
    decay_rate: float = 0.8  # the second moment decays by 1 - (step + 1 - step_offset)^-decay_rate
    step_offset: int = 0  # step at which fine-tuning began
    clipping_threshold: float | None = 1.0  # limit of an update's root mean square, None for none
    weight_decay_rate: float | None = None  # share of a parameter lost per step
    min_dim_size_to_factor: int = 128  # least size of both dimensions
    epsilon1: float = 1e-30  # added to squared gradients
    epsilon2: float = 1e-3  # least parameter scale
    dtype_momentum: jnp.dtype = FLOAT32
    factor_map: None = None
    logical_factor_rules: Mapping[str, Any] | None = None  # {axis name: rule}, above two dimensions
    weight_decay_rate_lr_exponent: float | None = None  # decay times learning_rate to this power
    # Limit of the norm of all gradients, applied before anything else.
    global_norm_clip_threshold: float | None = None
    max_parameter_scale: float | None = None  # greatest parameter scale
    skip_nan_updates: bool = False  # makes 'skip' the default of `trainer.Trainer.bad_steps`

    def __post_init__(self):
        if self.factor_map is not None or not isinstance(self.multiply_by_parameter_scale, bool):
            raise UserError(
                "adafactor.Adafactor",
                why="takes no HParamMap (factor_map, multiply_by_parameter_scale)",
                to_set="use logical_factor_rules and True or False",
            )
        if self.learning_rate is not None:
            logging.log_first_n(
                logging.WARNING,
                "adafactor.Adafactor.learning_rate = %s is ignored; the rate is that of "
                "trainer.Trainer.learning_rate_fn.",
                1,
                self.learning_rate,
            )

    @property
    def usual_rates(self) -> UsualRates:
        """Rates of relative steps, or without `multiply_by_parameter_scale` of absolute ones."""
        relative = self.multiply_by_parameter_scale
        return UsualRates("adafactor.Adafactor", *((1e-5, 0.5) if relative else (1e-6, 0.02)))

    def dims(self, shape: Dims, axes: Axes) -> Factoring:
        """Return the dimensions of one parameter to average over and to factor."""
        rules = self.logical_factor_rules or {"layers": FactorDim.BATCH}
        ruled = [FactorDim.NONE if a is None else rules.get(a, FactorDim.NONE) for a in axes]
        parts = [FactorDim(getattr(rule, "value", rule)) for rule in ruled]
        averaged = tuple(i for i, part in enumerate(parts) if part is not FactorDim.BATCH)
        if not self.factored or len(averaged) < 2:
            return Factoring(averaged, None)
        if len(averaged) == 2:
            smaller, larger = sorted(averaged, key=lambda i: shape[i])
            if shape[smaller] < self.min_dim_size_to_factor:
                return Factoring(averaged, None)
            return Factoring(averaged, ((smaller,), (larger,)))
        if self.logical_factor_rules is None:
            raise UserError(
                "adafactor.Adafactor.logical_factor_rules",
                None,
                f"and a parameter {axes} {shape} has more than two dimensions to factor",
                "set it to @adafactor.standard_logical_factor_rules(), or "
                "adafactor.Adafactor.factored to False",
            )
        pick = lambda part: tuple(i for i in averaged if parts[i] is part)
        row, column = pick(FactorDim.ROW), pick(FactorDim.COLUMN)
        if row and column and len(row) + len(column) < len(averaged):
            raise UserError(
                "adafactor.Adafactor.logical_factor_rules",
                why=f"leave a dimension of {axes} {shape} without ROW or COLUMN",
                to_set="give every axis one of them, or none",
            )
        return Factoring(averaged, (row, column) if row and column else None)

    def init(self, params: PyTree, axes: PyTree) -> PyTree:
        """Return zeros: {m, v, v_row, v_col} for each parameter.

        Raise UserError for a rule of an axis that neither a parameter nor
        `standard_logical_factor_rules` has.
        """
        self._check_rules(axes)
        return jax.tree.map(self.init_one, params, axes)

    def _check_rules(self, axes: PyTree) -> None:
        leaves = jax.tree.leaves(axes, is_leaf=lambda x: isinstance(x, tuple))
        model_axes = {axis for names in leaves for axis in names if axis is not None}
        ruled = (self.logical_factor_rules or {}).keys()
        if unknown := sorted(ruled - model_axes - standard_logical_factor_rules().keys()):
            raise UserError(
                "adafactor.Adafactor.logical_factor_rules",
                why=f"has {', '.join(map(repr, unknown))}, which no parameter has as an axis; the "
                f"model's axes are {', '.join(sorted(model_axes))}",
                to_set="leave the others out, or correct their names",
            )

    def init_one(self, param: jax.Array, axes: Axes) -> Moments:
        """Return the initial state of one parameter."""
        averaged = self.dims(param.shape, axes).averaged
        batch = tuple(n for i, n in enumerate(param.shape) if i not in averaged)
        state = {k: jnp.zeros((*batch, 1), jnp.float32) for k in ("m", "v", "v_row", "v_col")}
        if factored := self.dims(param.shape, axes).factored:
            for key, gone in zip(("v_col", "v_row"), factored, strict=True):
                state[key] = jnp.zeros(np.delete(param.shape, gone), jnp.float32)
        else:
            state["v"] = jnp.zeros(param.shape, jnp.float32)
        if self.beta1 is not None:
            state["m"] = jnp.zeros(param.shape, self.dtype_momentum)
        return state

    def state_axes(self, params: PyTree, axes: PyTree) -> PyTree:
        """Return axes: full moments have their parameter's axes, means the remaining ones."""

        def axes_of(param, axes):
            factored = self.dims(param.shape, axes).factored or ((), ())
            state = jax.eval_shape(lambda: self.init_one(param, axes))
            unused = lambda array: (None,) * array.ndim
            axes_by_key = {
                k: axes if a.shape == param.shape else unused(a) for k, a in state.items()
            }
            for key, gone in zip(("v_col", "v_row"), factored, strict=True):
                if gone:
                    axes_by_key[key] = tuple(a for i, a in enumerate(axes) if i not in gone)
            return axes_by_key

        return jax.tree.map(axes_of, params, axes)

    def update(self, grads, param_states, params, axes, step, learning_rate):
        """Apply one step to all parameters."""
        if limit := self.global_norm_clip_threshold:
            squares = [jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads)]
            scale = jnp.minimum(1.0, limit / jnp.sqrt(sum(squares)))
            grads = jax.tree.map(lambda g: g * scale, grads)
        update = lambda p, g, s, a: self.update_one(g, s, p, a, step, learning_rate)
        results = jax.tree.map(update, params, grads, param_states, axes)
        is_pair = lambda x: isinstance(x, tuple)
        new_params = jax.tree.map(lambda r: r[0], results, is_leaf=is_pair)
        return new_params, jax.tree.map(lambda r: r[1], results, is_leaf=is_pair)

    def update_one(self, grad, state, param, axes, step, learning_rate):
        """Apply one step to one parameter; return (new parameter, new state)."""
        dims = self.dims(param.shape, axes)
        rms = lambda x: jnp.sqrt(jnp.mean(x * x, axis=dims.averaged, keepdims=True))
        t = jnp.maximum(step - self.step_offset, 0).astype(jnp.float32) + 1.0
        decay = 1.0 - t**-self.decay_rate
        mix = lambda old, square: decay * old + (1.0 - decay) * (square + self.epsilon1)

        grad = grad.astype(jnp.float32)
        square = grad * grad
        new = dict(state)
        if dims.factored:
            col_gone, row_gone = dims.factored
            new["v_row"] = mix(state["v_row"], square.mean(row_gone))
            new["v_col"] = mix(state["v_col"], square.mean(col_gone))
            row = jnp.expand_dims(new["v_row"], row_gone)
            col = jnp.expand_dims(new["v_col"], col_gone)
            row = row / jnp.mean(row, axis=col_gone, keepdims=True)
            update = grad * jax.lax.rsqrt(row) * jax.lax.rsqrt(col)
        else:
            new["v"] = mix(state["v"], square)
            update = grad * jax.lax.rsqrt(new["v"])
        if self.clipping_threshold is not None:
            update /= jnp.maximum(1.0, rms(update) / self.clipping_threshold)

        update *= learning_rate
        if self.multiply_by_parameter_scale:
            update *= jnp.clip(rms(param), self.epsilon2, self.max_parameter_scale)
        if self.beta1 is not None:
            update = self.beta1 * state["m"] + (1.0 - self.beta1) * update
            new["m"] = update.astype(self.dtype_momentum)
        new_param = (1.0 - self.weight_decay(learning_rate)) * param - update
        return new_param.astype(param.dtype), new

    def weight_decay(self, learning_rate: jax.Array) -> jax.Array | float:
        """Return the share of a parameter lost in this step."""
        if self.weight_decay_rate_lr_exponent:
            rate = 1.0 if self.weight_decay_rate is None else self.weight_decay_rate
            return rate * learning_rate**self.weight_decay_rate_lr_exponent
        return self.weight_decay_rate or 0.0
