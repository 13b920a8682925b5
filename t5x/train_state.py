"""The state that training changes: step, parameters, optimizer state, and their shardings.

In memory the layers of a stack are one array; `to_disk` and `from_disk` go to and from upstream's
state dict, layer by layer: {'target': params, 'state': {'step', 'param_states'}}.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from flax import serialization

from t5x.array_types import PyTree
from t5x.checkpointing import layer_stacking
from t5x.partitioning import PjitPartitioner


@flax.struct.dataclass
class TrainState:
    """Step (int32, updates applied so far), float32 parameters, optimizer state."""

    step: jax.Array
    params: PyTree
    param_states: PyTree

    def state_dict(self) -> dict:
        """Return nested dicts in upstream's layout, layers still stacked."""
        param_states = serialization.to_state_dict(self.param_states)
        return {"target": self.params, "state": {"step": self.step, "param_states": param_states}}

    def restore_state(self, state_dict: Mapping) -> "TrainState":
        """Return the state of a `state_dict`, with this state's structure."""
        state = state_dict["state"]
        restored = serialization.from_state_dict(self.param_states, state["param_states"])
        return TrainState(state["step"], state_dict["target"], restored)


@dataclasses.dataclass(frozen=True)
class StateSpecs:
    """A train state without arrays: `state` of ShapeDtypeStructs with shardings, `axes` names."""

    state: TrainState
    axes: PyTree

    @property
    def shardings(self) -> TrainState:
        """The sharding of each array."""
        return jax.tree.map(lambda x: x.sharding, self.state)

    @property
    def on_disk(self) -> dict:
        """Upstream's state dict, layer by layer, of ShapeDtypeStructs with shardings."""
        return layer_stacking.unstack_layers(self.state.state_dict())


@functools.partial(jax.jit, static_argnums=0)
def _initial_params(model: Any, rng: jax.Array) -> dict:
    """Return the initial parameters in Flax's boxes. A model is traced once for all uses."""
    any_lengths = {"encoder_input_tokens": (1, 1), "decoder_input_tokens": (1, 1)}
    return model.get_initial_variables(rng, any_lengths)["params"]


def state_specs(model: Any, partitioner: PjitPartitioner) -> StateSpecs:
    """Return shapes, dtypes and shardings of the state."""
    key = jax.eval_shape(jax.random.key, 0)
    boxed = jax.eval_shape(functools.partial(_initial_params, model), key)
    is_box = lambda x: isinstance(x, nn.Partitioned)
    axes = jax.tree.map(lambda x: x.names if is_box(x) else (None,) * x.ndim, boxed, is_leaf=is_box)
    params = nn.unbox(boxed)
    optimizer = model.optimizer_def
    init = lambda p: TrainState(jnp.zeros((), jnp.int32), p, optimizer.init(p, axes))
    shapes = jax.eval_shape(init, params)
    replaced = {"params": axes, "param_states": optimizer.state_axes(params, axes)}
    state_axes = shapes.replace(step=(), **replaced)
    place = lambda s, a: jax.ShapeDtypeStruct(
        s.shape, s.dtype, sharding=partitioner.sharding(a, s.shape)
    )
    return StateSpecs(jax.tree.map(place, shapes, state_axes), axes)


def initial_state(model: Any, specs: StateSpecs, rng: jax.Array) -> TrainState:
    """Return an initial state, each shard computed on its device."""

    def init(rng):
        params = nn.unbox(_initial_params(model, rng))
        param_states = model.optimizer_def.init(params, specs.axes)
        return TrainState(jnp.zeros((), jnp.int32), params, param_states)

    return jax.jit(init, out_shardings=specs.shardings)(rng)


def to_disk(state: TrainState, specs: StateSpecs) -> dict:
    """Return upstream's state dict of arrays, layer by layer, sharded as `specs.on_disk`."""
    shardings = jax.tree.map(lambda x: x.sharding, specs.on_disk)
    return jax.jit(layer_stacking.unstack_layers, out_shardings=shardings)(state.state_dict())


def from_disk(state_dict: Mapping, specs: StateSpecs) -> TrainState:
    """Return the state of a `to_disk` dict, sharded as `specs` say."""

    def stacked(tree):
        return specs.state.restore_state(layer_stacking.stack_layers(tree))

    return jax.jit(stacked, out_shardings=specs.shardings)(dict(state_dict))
