"""The state of a run: shapes and places over any mesh, and the way to the disk and back."""

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from fakes import toy
from fakes.golden import Golden
from t5x.partitioning import PjitPartitioner
from t5x.train_state import from_disk, initial_state, state_specs, to_disk


def specs_of(model, partitions):
    return state_specs(model, PjitPartitioner(partitions))


def equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_the_disk_layout_is_upstreams_and_spread_over_both_axes(golden, partitions):
    specs = specs_of(golden.model(), partitions)
    flat = flatten_dict(specs.on_disk, sep="/")
    wanted = golden.arrays("final_state")
    assert {k: v.shape for k, v in flat.items()} == {k: v.shape for k, v in wanted.items()}
    assert {k: v.dtype for k, v in flat.items()} == {k: v.dtype for k, v in wanted.items()}
    place = lambda name: tuple(flat[name].sharding.spec)
    assert place("target/encoder/layers_1/attention/query/kernel") == ("data", "model")
    assert place("target/encoder/layers_1/attention/out/kernel") == ("model", "data")
    assert place("target/token_embedder/embedding") == ("model", "data")
    assert place("state/param_states/token_embedder/embedding/v") == ("model", "data")
    assert place("target/decoder/decoder_norm/scale") == ("data",)
    shard = flat["target/token_embedder/embedding"].sharding.shard_shape((512, 64))
    assert shard == (512 // partitions, 64 // (8 // partitions))


def test_in_memory_layers_have_a_leading_axis_of_their_own(golden):
    specs = specs_of(golden.model(), 2)
    kernel = specs.state.params["decoder"]["layers"]["self_attention"]["query"]["kernel"]
    assert kernel.shape == (3, 64, 64)
    assert tuple(kernel.sharding.spec) == (None, "data", "model")
    axes = specs.axes["decoder"]["layers"]["self_attention"]["query"]["kernel"]
    assert axes == ("layers", "embed", "joined_kv")


@pytest.mark.parametrize("partitions", [1, 4])
def test_to_the_disk_and_back_is_the_same(partitions):
    golden = Golden("t5_1_1")
    specs = specs_of(golden.model(), partitions)
    saved = golden.tree("final_state")
    state = from_disk(saved, specs)
    assert int(state.step) == 25
    shards = jax.tree.map(lambda x, s: x.sharding == s, state, specs.shardings)
    assert all(jax.tree.leaves(shards))
    back = to_disk(state, specs)
    equal(back, saved)
    kernel = back["target"]["encoder"]["layers_0"]["mlp"]["wi_0"]["kernel"]
    assert kernel.sharding.shard_shape(kernel.shape) == (64 // (8 // partitions), 96 // partitions)


def test_initial_values_do_not_depend_on_the_mesh():
    model = toy.model(num_encoder_layers=2)
    states = [initial_state(model, specs_of(model, n), jax.random.key(7)) for n in (1, 4)]
    equal(*states)
    kernel = np.asarray(states[0].params["encoder"]["layers"]["mlp"]["wi"]["kernel"])
    assert np.abs(kernel[0] - kernel[1]).max() > 0.01  # layers differ
    assert int(states[0].step) == 0
