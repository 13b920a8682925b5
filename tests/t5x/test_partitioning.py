"""Logical axes to mesh axes, devices to meshes, batches to devices."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from fakes.refuses import refuses
from t5x.partitioning import (
    PjitPartitioner,
    constrain,
    gather_parameter,
    hybrid_grid,
    mesh_axes,
    side_by_side,
    spread,
    standard_logical_axis_rules,
    submesh_grid,
)


def spec(axes, shape, partitions=2, **rules):
    rules = standard_logical_axis_rules(**rules)
    return mesh_axes(axes, rules, PjitPartitioner(partitions).mesh, shape)


ONE, TWO = ({"parameter_partitioning_dims": n} for n in (1, 2))
ACTIVATIONS = {"activation_partitioning_dims": 2}


@pytest.mark.parametrize(
    ("axes", "shape", "expected", "rules"),
    [
        (("batch", "length", "embed"), (8, 16, 32), ("data", None, None), {}),
        (("embed", "mlp"), (32, 64), ("data", "model"), {}),
        (("layers", "joined_kv", "embed"), (3, 64, 32), (None, "model", "data"), {}),
        (("vocab", "embed"), (512, 32), ("model", "data"), {}),
        (("heads", "relpos_buckets"), (4, 32), ("model", None), {}),
        ((None, "mlp"), (8, 64), (None, "model"), {}),
        ((), (), (), {}),
        # What a mesh axis does not divide is replicated.
        (("embed", "mlp"), (31, 63), (None, None), {}),
        (("batch", "length"), (3, 8), (None, None), {}),
        # A mesh axis serves one dimension: the first that it divides.
        (("vocab", "mlp"), (64, 64), ("model", None), {}),
        (("vocab", "mlp"), (63, 64), (None, "model"), {}),
        # Two dimensions of parameters or activations, or upstream's one.
        (("embed", "mlp"), (32, 64), ("data", "model"), TWO),
        (("batch", "length", "embed"), (8, 4, 32), ("data", None, "model"), TWO | ACTIVATIONS),
        (("embed", "mlp"), (32, 64), (None, "model"), ONE),
    ],
)
def test_an_axis_follows_its_rule(axes, shape, expected, rules):
    assert spec(axes, shape, **rules) == PartitionSpec(*expected)


def test_rules_can_be_added_and_must_be_there():
    added = {"additional_rules": [("experts", "data")], "parameter_partitioning_dims": 1}
    assert spec(("experts", "embed"), (4, 8), **added) == PartitionSpec("data", None)
    with refuses("Logical axes ['experts']"):
        spec(("experts", "embed"), (4, 8))


@pytest.mark.parametrize(("partitions", "data"), [(None, 8), (1, 8), (2, 4), (8, 1)])
def test_all_devices_are_in_the_mesh_once(partitions, data):
    mesh = PjitPartitioner(partitions).mesh
    assert mesh.shape == {"data": data, "model": 8 // data}
    assert sorted(d.id for d in mesh.devices.flat) == sorted(d.id for d in jax.devices())


def test_contradicting_numbers_of_partitions_are_refused():
    with refuses("PjitPartitioner.num_partitions", 4):
        PjitPartitioner(4, model_parallel_submesh=(2, 1))
    assert PjitPartitioner(1, model_parallel_submesh=(2, 2, 1, 1)).num_partitions == 4


def test_a_batch_must_be_cut_into_equal_parts():
    partitioner = PjitPartitioner(2)
    partitioner.check_batch(24, 3, "BATCH_SIZE")
    partitioner.check_batch(4, None, "BATCH_SIZE")
    with refuses("BATCH_SIZE", 20) as refusal:
        partitioner.check_batch(20, 3, "BATCH_SIZE")
    assert "a multiple of 12" in refusal.value.to_set


@dataclasses.dataclass(frozen=True)
class Chip:
    coords: tuple[int, int, int]
    core_on_chip: int = 0
    platform: str = "tpu"
    id: int = 0
    process_index: int = 0


def slice_of(x, y, z=1, cores=1):
    chips = [Chip(tuple(at[:3]), at[3]) for at in np.ndindex(x, y, z, cores)]
    return [chips[i] for i in np.random.default_rng(0).permutation(len(chips))]


@pytest.mark.parametrize(
    ("chips", "submesh"),
    [
        (slice_of(4, 4), (2, 2, 1, 1)),
        (slice_of(4, 4), (4, 1)),
        (slice_of(2, 2, 2, 2), (1, 1, 2, 2)),
        (slice_of(4, 4), (1, 1, 1, 1)),
    ],
)
def test_each_model_replica_is_one_block_of_chips(chips, submesh):
    grid = submesh_grid(chips, submesh)
    assert {(*d.coords, d.core_on_chip) for d in grid.flat} == {
        (*d.coords, d.core_on_chip) for d in chips
    }
    sizes = (*submesh, 1, 1, 1)[:4]
    assert grid.shape == (len(chips) // np.prod(sizes), np.prod(sizes))
    for row in grid:
        places = np.array([(*d.coords, d.core_on_chip) for d in row])
        extent = places.max(0) - places.min(0) + 1
        assert tuple(extent) == sizes


def test_a_submesh_that_does_not_tile_the_slice_is_refused():
    with refuses("PjitPartitioner.model_parallel_submesh", (3, 1, 1, 1)):
        submesh_grid(slice_of(4, 4), (3, 1, 1, 1))


@pytest.mark.parametrize("model", [1, 2, 4, 8])
def test_a_hosts_rows_stand_side_by_side(model):
    """4×4 chips row by row, 2×2 of them to a host: half of each host's, another's, its rest."""
    chips = [
        Chip((x, y, 0), process_index=2 * (x // 2) + y // 2) for x in range(4) for y in range(4)
    ]
    grid = np.array(chips, object).reshape(-1, model)
    ordered = side_by_side(grid)
    assert {tuple(row) for row in ordered.tolist()} == {tuple(row) for row in grid.tolist()}
    for host in range(4):
        fed = [i for i, row in enumerate(ordered) if any(d.process_index == host for d in row)]
        assert fed == list(range(fed[0], fed[-1] + 1))


def test_constrain_lays_out_inside_a_step_and_nowhere_else():
    partitioner = PjitPartitioner(2)
    x = jnp.zeros((8, 4, 16))
    assert constrain(x, "batch", "length", "mlp") is x
    with partitioner.activations():
        y = jax.jit(lambda x: constrain(x + 1, "batch", "length", "mlp"))(x)
    assert y.sharding.is_equivalent_to(partitioner.sharding(("batch", "length", "mlp"), x.shape), 3)
    assert y.sharding.spec == PartitionSpec("data", None, "model")
    assert constrain(x, "batch", "length", "mlp") is x


def test_a_parameter_is_gathered_in_use_and_its_gradient_sharded():
    partitioner = PjitPartitioner(2)
    kernel = jax.device_put(
        jnp.arange(64.0).reshape(8, 8), partitioner.sharding(("embed", "mlp"), (8, 8))
    )
    assert tuple(kernel.sharding.spec) == ("data", "model")

    def used(kernel):
        with partitioner.activations():
            return gather_parameter(kernel, "embed", "mlp")

    in_use, gradient = jax.jit(used)(kernel), jax.jit(jax.grad(lambda k: (used(k) ** 2).sum()))
    assert in_use.sharding.is_equivalent_to(
        NamedSharding(partitioner.mesh, PartitionSpec(None, "model")), 2
    )
    np.testing.assert_array_equal(in_use, kernel)
    assert gradient(kernel).sharding.is_equivalent_to(kernel.sharding, 2)
    np.testing.assert_array_equal(gradient(kernel), 2 * kernel)
    assert gather_parameter(kernel, "embed", "mlp") is kernel


def test_a_mesh_of_slices_has_complete_models_in_each():
    """Two slices of four devices: each replica of the model is within one slice."""
    partitioner = PjitPartitioner(1, ici_mesh_shape=(1, 2, 2), dcn_mesh_shape=(2, 1, 1))
    assert partitioner.num_partitions == 2

    class Device:
        platform, device_kind = "cpu", "cpu"

        def __init__(self, number):
            self.id, self.slice_index, self.process_index = number, number // 4, 0

    grid = hybrid_grid([Device(i) for i in range(8)], (1, 2, 2), (2, 1, 1))
    assert grid.shape == (4, 2)
    assert all(len({device.slice_index for device in row}) == 1 for row in grid)


@pytest.mark.parametrize(
    ("ici", "dcn"),
    [((1, 2, 4), None), (None, (1, 1, 1)), ((2, 4), (1, 1)), ((1, 2, 2), (1, 1, 1))],
)
def test_shapes_of_slices_must_fit(ici, dcn):
    with refuses("PjitPartitioner.ici_mesh_shape", ici):
        assert PjitPartitioner(ici_mesh_shape=ici, dcn_mesh_shape=dcn).mesh


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_stack_is_cut_over_all_devices_behind_zeros(partitions):
    stack = jnp.arange(1.0, 21).reshape(10, 2)
    assert spread(stack) is stack
    with PjitPartitioner(partitions).activations():
        found = jax.jit(spread)(stack)
    assert {s.data.shape for s in found.addressable_shards} == {(2, 2)}
    assert len({s.index[0].start for s in found.addressable_shards}) == 8
    np.testing.assert_array_equal(found[:10], stack)
    assert not found[10:].any()


class SharedRows:
    """A sharding of a batch over four hosts of two chips. Two hosts share each replica."""

    hosts = (0, 2, 1, 3)  # which of them hold rows 0 to 4 and 4 to 8, two by two
    this = 0

    def devices_indices_map(self, shape):
        half = shape[0] // 2
        chips = [Chip((n, 0, 0), process_index=self.hosts[n // 2]) for n in range(8)]
        part = lambda chip: chip.coords[0] // 4 * half
        return {chip: (slice(part(chip), part(chip) + half),) for chip in chips}

    def addressable_devices_indices_map(self, shape):
        found = self.devices_indices_map(shape)
        return {chip: index for chip, index in found.items() if chip.process_index == self.this}


def test_of_the_hosts_that_share_a_replica_the_first_saves(monkeypatch):
    partitioner = PjitPartitioner(1)
    sharding = SharedRows()
    monkeypatch.setattr(type(partitioner), "batch_sharding", sharding)
    monkeypatch.setattr(jax, "process_index", lambda: sharding.this)
    found = []
    for sharding.this in range(4):
        found.append((partitioner.host_rows(8), partitioner.is_first_with_rows(8)))
    assert found == [((0, 4), True), ((4, 8), True), ((0, 4), False), ((4, 8), False)]
