"""Upstream's scalable_t5, the network of the public umT5, is restored and trained on."""

import threading

import jax
import numpy as np
import pytest

from fakes.convert_fakes import FAMILIES, arrays, scanned, tree
from fakes.golden import Golden, jitted_step
from t5x import schedules
from t5x.checkpointing import lazy_array, reader, scalable_t5
from t5x.checkpointing.restore import restore
from t5x.partitioning import PjitPartitioner
from t5x.train_state import from_disk, state_specs

CHECKPOINTS = ["umt5/legacy", "umt5/orbax", "t5_1_1/orbax", "tied/orbax"]


def golden_of(name):
    return Golden(f"scalable_t5/{name.split('/')[0]}")


def path_of(name):
    return str(golden_of(name).folder.parent / name / "checkpoint_3")


def batches(golden):
    found = golden.arrays("continued")
    steps = range(len(found["loss"]))
    return [{k.split("/")[0]: v for k, v in found.items() if k.endswith(f"/{i}")} for i in steps]


def specs_of(golden, model, devices=1):
    devices = jax.devices()[:devices]
    partitioner = PjitPartitioner(num_partitions=len(devices), devices=devices)
    return state_specs(model, partitioner)


@pytest.mark.parametrize(
    "name", [*CHECKPOINTS[:2], *(pytest.param(c, marks=pytest.mark.slow) for c in CHECKPOINTS[2:])]
)
def test_upstreams_run_is_continued(name):
    golden = golden_of(name)
    model = golden.model(own_relative_bias=True)
    specs = specs_of(golden, model)
    restored = restore(path_of(name), specs.on_disk)
    assert restored.step == 3
    state, expected = from_disk(restored.state, specs), golden.arrays("continued")
    steps = batches(golden)
    logits = np.asarray(model.logits(state.params, steps[0]))
    real = steps[0]["decoder_target_tokens"] > 0  # padding has arbitrary logits, in both
    np.testing.assert_allclose(logits[real], expected["logits"][real], rtol=0, atol=1e-4)
    rate = schedules.create_learning_rate_scheduler(
        factors="constant", base_learning_rate=golden.settings["learning_rate"]
    )
    step, losses = jitted_step(model, specs, rate), []
    for batch in steps:
        state, sums = step(state, batch, jax.random.key(0))
        losses.append(float(sums["loss"]))
    np.testing.assert_allclose(losses, expected["loss"], rtol=1e-5)


def test_devices_that_split_heads_and_layers_restore_the_same():
    golden = golden_of("umt5")
    model = golden.model(own_relative_bias=True)
    one, many = (specs_of(golden, model, devices).on_disk for devices in (1, 8))
    split = many["target"]["encoder"]["layers_0"]["attention"]["query"]["kernel"]
    assert split.sharding.shard_shape(split.shape) == (16, 1)  # of heads of 2
    expected, found = (restore(path_of("umt5/orbax"), specs).state for specs in (one, many))
    jax.tree.map(np.testing.assert_array_equal, expected, found)


@pytest.mark.parametrize("own", [True, False])
def test_tables_of_another_kind_name_the_setting(own):
    golden = golden_of("umt5") if own else Golden("t5_1_1")
    path = path_of("umt5/orbax") if own else str(golden.folder / "orbax/checkpoint_25")
    specs = specs_of(golden_of("umt5"), golden.model(own_relative_bias=not own))
    with pytest.raises(ValueError, match=rf"own_relative_bias = {own}"):
        restore(path, specs.on_disk)


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert (a[name].shape, a[name].dtype) == (b[name].shape, b[name].dtype), name
        np.testing.assert_array_equal(a[name].read(), b[name].read(), name)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_scanned_tree_is_the_same_network(family):
    sizes = FAMILIES[family]
    values = {f"target/{name}": value for name, value in arrays(sizes).items()}
    stored = {f"target/{k}": v for k, v in scanned(arrays(sizes), sizes).items()}
    found = scalable_t5.layer_by_layer(tree(stored))
    same(found, tree(values))


@pytest.mark.parametrize("together", [False, True])
def test_a_part_is_cut_from_the_complete_array(together):
    stored = reader.open_checkpoint(path_of("umt5/legacy"))
    rng = np.random.default_rng(0)
    complete = {name: array.read() for name, array in stored.items()}
    for name, array in reader.open_checkpoint(path_of("umt5/legacy"), together).items():
        starts = [int(rng.integers(0, n)) for n in array.shape]
        part = tuple(
            slice(a, int(rng.integers(a, n)) + 1) for a, n in zip(starts, array.shape, strict=True)
        )
        for index in (part, part[:1], (slice(None),) * len(part)):
            np.testing.assert_array_equal(array.read(index), complete[name][index], name)


def counted(shape, reads):
    def fetch(index):
        reads.append(threading.current_thread().name)
        return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)[index]

    return lazy_array.LazyArray(shape, np.dtype(np.float32), fetch)


@pytest.mark.parametrize(("together", "index"), [(False, ()), (True, (slice(0, 3),))])
def test_layers_of_one_stored_array_read_it_once(together, index):
    reads = []
    stored = {"target/encoder/encoder/mlp/wi_0/kernel": counted((4, 3, 5), reads)}
    layers = scalable_t5.layer_by_layer(stored, together)
    assert len(layers) == 3
    for layer in layers.values():
        layer.read(index)
    assert len(reads) == 1
