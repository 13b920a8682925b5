"""A checkpoint holds exactly what was saved, in T5X's layout, completely or not at all."""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from fakes.checkpoints import like, mesh, placed, same, saved, state
from fakes.full_disk import full_disk
from fakes.golden import Golden
from fakes.loopback import free_port
from fakes.paths import PYTHONPATH
from fakes.refuses import refuses
from t5x import checkpoints
from t5x.checkpointing import layout
from t5x.checkpointing.async_save import AsyncSave
from t5x.checkpointing.config import RestoreCheckpointConfig, SaveCheckpointConfig
from t5x.checkpointing.layout import all_steps
from t5x.checkpointing.reader import open_checkpoint
from t5x.checkpointing.restore import restore
from t5x.checkpointing.retention import steps_to_delete
from t5x.checkpoints import Checkpointer, SaveError


@pytest.fixture
def run(tmp_path):
    return str(tmp_path / "run")


@pytest.mark.parametrize("kind", ["orbax", "legacy"])
def test_upstreams_checkpoints_are_restored_bit_for_bit_in_shards(golden, kind):
    wanted = placed(golden.tree("final_state"), mesh(4, 2))
    restored = restore(str(golden.folder / kind / "checkpoint_25"), like(wanted))
    assert same(restored.state, wanted)
    assert jax.tree.all(jax.tree.map(lambda a, b: a.sharding == b.sharding, restored.state, wanted))
    assert restored.step == 25


def test_a_saved_state_has_upstreams_layout_and_its_reader_accepts_it(golden, run):
    tree = golden.tree("final_state")
    folder = saved(run, 25, tree=placed(tree, mesh(4, 2)))
    upstreams = golden.folder / "orbax/checkpoint_25"

    def described(path):
        read = lambda name: json.loads((path / name).read_text())
        entries = read("state/_METADATA")["tree_metadata"].items()
        types = {key: value["value_metadata"]["value_type"] for key, value in entries}
        return types, read("_CHECKPOINT_METADATA")["item_handlers"]["state"]

    assert described(pathlib.Path(folder)) == described(upstreams)
    # As T5X makes its manager, the tree unknown to it.
    manager = ocp.CheckpointManager(
        run,
        {"state": ocp.Checkpointer(ocp.PyTreeCheckpointHandler())},
        ocp.CheckpointManagerOptions(step_prefix="checkpoint"),
    )
    assert manager.all_steps() == [25]
    args = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
    read = manager.restore(25, restore_kwargs={"state": {"restore_args": args}})["state"]
    assert same(read, tree)


def test_a_state_saved_on_one_topology_is_restored_on_others(run):
    tree = Golden("t5_1_1").tree("final_state", "target")
    folder = saved(run, 1, tree={"target": placed(tree, mesh(4, 2))})
    for shape in ((1, 1), (2, 1), (2, 4), None):
        wanted = {"target": placed(tree, mesh(*shape)) if shape else tree}
        assert same(restore(folder, like(wanted)).state, wanted), shape


def test_arrays_may_be_donated_as_soon_as_save_returns(run):
    tree = placed(state(scale=3.0), mesh(4, 2))
    erase = jax.jit(lambda t: jax.tree.map(lambda x: x * 0, t), donate_argnums=0)
    with Checkpointer(run) as checkpointer:
        checkpointer.save(1, tree)
        jax.block_until_ready(erase(tree))
    assert same(restore(f"{run}/checkpoint_1", state()).state, state(scale=3.0))


def test_parameters_are_rounded_on_disk_if_asked_and_the_optimizer_never(run):
    folder = saved(run, 1, dtype="bfloat16")
    arrays = open_checkpoint(folder)
    assert arrays["target/encoder/w"].dtype == jnp.bfloat16
    assert arrays["state/param_states/encoder/w/v"].dtype == np.float32
    back = restore(folder, state()).state["target"]["encoder"]["w"]
    assert back.dtype == np.float32
    assert np.array_equal(back, state()["target"]["encoder"]["w"].astype(jnp.bfloat16))
    config = RestoreCheckpointConfig(folder, dtype="bfloat16")
    assert restore(folder, state(), config).state["target"]["encoder"]["w"].dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("keep", "pinned", "gone"),
    [
        (None, (), []),
        (2, (), [1, 2]),
        (5, (), []),
        (1, (2,), [1, 3]),  # a pinned step does not take the place of a newer one
        (1, (4,), [1, 2]),
    ],
)
def test_the_newest_and_the_pinned_steps_are_kept(keep, pinned, gone):
    assert steps_to_delete([1, 2, 3, 4], keep, pinned) == gone


def test_old_checkpoints_are_deleted_once_the_new_one_is_complete(run):
    seen = []

    def watch(_):
        seen.append(all_steps(run))

    config = SaveCheckpointConfig(keep=2, checkpoint_steps=[1], save_dataset=True)
    with Checkpointer(run, config) as checkpointer:
        for step in (1, 2, 3, 4):
            checkpointer.save(step, state(step), watch)
    # While 4 was written, 2 and 3 were there.
    assert seen == [[], [1], [1, 2], [1, 2, 3]]
    assert all_steps(run) == [1, 3, 4]


def test_the_data_position_is_saved_with_a_checkpoint(run):
    def write(folder):
        with open(f"{folder}/train_ds-000-of-001", "w") as file:
            file.write("42")

    config = SaveCheckpointConfig(save_dataset=True, keep_dataset_checkpoints=1)
    with Checkpointer(run, config) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state(step), write)
    folders = [layout.dataset_folder(f"{run}/checkpoint_{step}") for step in (1, 2)]
    assert folders == [None, f"{run}/checkpoint_2/dataset"]
    with open(f"{folders[1]}/train_ds-000-of-001") as file:
        assert file.read() == "42"
    assert same(restore(f"{run}/checkpoint_1", state()).state, state(1))
    with Checkpointer(run) as checkpointer:  # which is not asked to
        checkpointer.save(3, state(3), lambda folder: pytest.fail("was called"))


def test_an_existing_step_is_not_written_again(run):
    with Checkpointer(run) as checkpointer:
        assert checkpointer.save(1, state(scale=1.0))
        assert not checkpointer.save(1, state(scale=2.0))
    assert same(restore(f"{run}/checkpoint_1", state()).state, state(scale=1.0))


def test_a_clock_that_jumps_ahead_ends_no_save(run, monkeypatch):
    """As that of a laptop that slept, or of a machine that learns of the year after 1970."""
    clock, readings = time.time, itertools.count()
    day, year = 24 * 3600, 365 * 24 * 3600
    monkeypatch.setattr(time, "time", lambda: clock() + min(40 * day * next(readings), 60 * year))
    with Checkpointer(run) as checkpointer:
        for step in range(1, 6):
            checkpointer.save(step, state(step))
    assert next(readings) * 40 * day > year
    assert all_steps(run) == [1, 2, 3, 4, 5]


def cut(path):
    with open(path, "r+b") as file:
        file.truncate(1)


def lose_manifest(folder):
    os.remove(f"{folder}/state/manifest.ocdbt")


def lose_array(folder):
    description = pathlib.Path(folder, "state", "_METADATA")
    content = json.loads(description.read_text())
    del content["tree_metadata"]["('state', 'param_states', 'decoder', 'w', 'v')"]
    description.write_text(json.dumps(content))


def lose_bytes(folder):
    for path in pathlib.Path(folder, "state", "d").iterdir():
        cut(path)


def lose_position(folder):
    shutil.rmtree(f"{folder}/dataset")


def cut_position(folder):
    cut(f"{folder}/dataset/place")


@pytest.mark.parametrize(
    "damage", [lose_manifest, lose_array, lose_bytes, lose_position, cut_position]
)
def test_the_first_checkpoint_is_opened_as_a_resume_would(run, damage, monkeypatch):
    """Whatever a writer loses without an error, the run says so at its first save."""
    write = lambda folder: pathlib.Path(folder, "place").write_text("here")
    commit = ocp.AsyncCheckpointer.wait_until_finished

    def damaged(writer):
        commit(writer)
        if layout.kind(f"{run}/checkpoint_1"):  # Orbax also waits before it saves
            damage(f"{run}/checkpoint_1")

    config = SaveCheckpointConfig(save_dataset=True)
    checkpointer = Checkpointer(run, config)
    with monkeypatch.context() as patched:
        patched.setattr(ocp.AsyncCheckpointer, "wait_until_finished", damaged)
        checkpointer.save(1, state(1), write)
        with refuses("checkpoint_1", kind=SaveError) as refusal:
            checkpointer.wait()
    assert refusal.value.to_set == "there is no earlier one"


@pytest.mark.parametrize("name", ["b[1]", "a*b/c", "what?", "a\\b"])
def test_a_folder_that_orbax_reads_as_a_pattern_holds_what_was_saved_or_is_reported(tmp_path, name):
    folder = str(tmp_path / name)
    with contextlib.suppress(SaveError):
        saved(folder, 1)
        assert same(restore(f"{folder}/checkpoint_1", state()).state, state(1))


KILLED = """
import os, signal, sys
from fakes.checkpoints import state
from t5x.checkpointing.config import SaveCheckpointConfig
from t5x.checkpoints import Checkpointer
checkpointer = Checkpointer(sys.argv[1], SaveCheckpointConfig(save_dataset=True))
checkpointer.save(1, state(1))
checkpointer.save(2, state(2), lambda folder: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_save_killed_half_way_is_never_complete_and_is_removed(run):
    environment = os.environ | {"PYTHONPATH": PYTHONPATH}
    killed = subprocess.run([sys.executable, "-c", KILLED, run], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(os.listdir(run)) == 2  # something is left of the second
    assert all_steps(run) == [1]
    with Checkpointer(run) as checkpointer:
        assert os.listdir(run) == ["checkpoint_1"]
        assert checkpointer.save(2, state(2))
    assert same(restore(f"{run}/checkpoint_2", state()).state, state(2))


def test_a_full_disk_ends_in_one_sentence_and_the_last_checkpoint_stays(run, caplog):
    big = {"target": {"w": np.random.default_rng(0).random((500, 500), np.float32)}}
    checkpointer = Checkpointer(run, SaveCheckpointConfig(keep=1))
    checkpointer.save(1, big)
    checkpointer.wait()

    def save():
        checkpointer.save(2, big)
        checkpointer.wait()

    with full_disk(20_000), refuses("checkpoint_2", kind=SaveError) as refusal:
        save()
    assert refusal.value.to_set == "checkpoint_1 is complete"
    assert "could not be written" not in caplog.text  # the error that is raised says so
    assert os.listdir(run) == ["checkpoint_1"]
    assert same(restore(f"{run}/checkpoint_1", big).state, big)
    # Nothing is stuck: with space again, the next one is written.
    checkpointer.save(3, big)
    checkpointer.close()
    assert all_steps(run) == [3]


def test_a_state_with_nan_or_infinity_is_not_written(run):
    for bad in (np.nan, np.inf):
        tree, named = state(2), "target/decoder/w;"
        tree["target"]["decoder"]["w"][1, 1] = bad
        for of in (lambda x: x, jnp.asarray):
            with Checkpointer(run) as checkpointer:
                checkpointer.save(1, state(1))
                checkpointer.wait()
                with pytest.raises(FloatingPointError, match=f"infinity in {named}.*bad_steps"):
                    checkpointer.save(2, jax.tree.map(of, tree))
    assert os.listdir(run) == ["checkpoint_1"]


@pytest.fixture
def saves(monkeypatch):
    """The saves that are begun, by name; that of checkpoint_2 has half a second."""
    begun = {}

    def begin(name, copy, write, timeout):
        timeout = 0.5 if name == "checkpoint_2" else timeout
        begun[name] = AsyncSave(name, copy, write, timeout)
        return begun[name]

    monkeypatch.setattr(checkpoints, "AsyncSave", begin)
    return begun


def test_a_save_that_hangs_ends_the_run_in_one_sentence(run, monkeypatch, saves):
    storage = threading.Event()
    monkeypatch.setattr(layout, "write_checksums", lambda *_: storage.wait(600))
    checkpointer = Checkpointer(run, SaveCheckpointConfig(timeout=600, save_dataset=True))
    write = lambda folder: pathlib.Path(folder, "position").write_text("here")
    checkpointer.save(1, state(1), write)
    saves["checkpoint_1"].shorten_deadline(0.5)
    with refuses("checkpoint_1", kind=SaveError) as refusal:
        checkpointer.wait()
    assert "SaveCheckpointConfig.timeout is 600" in refusal.value.why
    assert not checkpointer.saving
    with refuses("checkpoint_2", kind=SaveError):  # before it copied
        checkpointer.save(2, state(2), lambda _: storage.wait(600))
    closing = threading.Thread(target=checkpointer.close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()
    storage.set()


@pytest.mark.usefixtures("saves")
def test_a_save_that_fails_or_hangs_is_skipped_if_asked(run, caplog):
    config = SaveCheckpointConfig(timeout=600, when_failed="go_on", save_dataset=True)
    checkpointer, late = Checkpointer(run, config), threading.Event()

    def refuse(_):
        raise OSError("refused")

    assert not checkpointer.save(1, state(1), refuse)
    assert not checkpointer.save(2, state(2), lambda _: late.wait(600))
    assert caplog.text.count("could not be written") == 2
    assert all_steps(run) == []
    assert checkpointer.save(3, state(3))
    checkpointer.close()
    assert checkpointer.last_complete == 3
    hung = [thread for thread in threading.enumerate() if thread.name == "checkpoint_2"]
    assert hung
    late.set()
    for thread in hung:
        thread.join(60)
    assert all_steps(run) == [2, 3]  # late, but complete
    assert checkpointer.last_complete == 3
    assert same(restore(f"{run}/checkpoint_3", state()).state, state(3))


POD = """
import os, sys
index, folder, address = int(sys.argv[1]), *sys.argv[2:]
os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(address, 4, index)
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from fakes.checkpoints import like, state
from fakes.refuses import refuses
from t5x.checkpointing.config import SaveCheckpointConfig
from t5x.checkpointing.restore import restore
from t5x.checkpoints import Checkpointer
on = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
spread = NamedSharding(on, PartitionSpec(None, ("data", "model")))
replicated = NamedSharding(on, PartitionSpec())
put = lambda x: jax.make_array_from_callback(
    x.shape, spread if x.ndim == 2 else replicated, lambda index: x[index]
)
write = lambda place: open(f"{place}/train_ds-{index:03}-of-004", "w").close()
with Checkpointer(folder, SaveCheckpointConfig(keep=1, save_dataset=True)) as checkpointer:
    for step in (1, 2):
        tree = jax.tree.map(put, jax.tree.map(np.asarray, state(step, width=8)))
        checkpointer.save(step, tree, write)
back = restore(f"{folder}/checkpoint_2", like(tree)).state
parts = lambda t: [np.asarray(s.data) for x in jax.tree.leaves(t) for s in x.addressable_shards]
assert all(map(np.array_equal, parts(back), parts(tree)))
"""


@pytest.mark.slow
def test_four_processes_save_their_shards_and_any_number_of_devices_restores_them(run):
    environment = os.environ | {"PYTHONPATH": PYTHONPATH}
    address = f"127.0.0.1:{free_port()}"
    command = lambda index: [sys.executable, "-c", POD, str(index), run, address]
    processes = [subprocess.Popen(command(index), env=environment) for index in range(4)]
    try:
        assert [process.wait(240) for process in processes] == [0] * 4
    finally:
        [process.kill() for process in processes]
    assert os.listdir(run) == ["checkpoint_2"]
    wanted = state(2, width=8)
    for shape in (None, (1, 1), (2, 1), (1, 2), (8, 1), (2, 4), (1, 8)):
        placed_so = placed(wanted, mesh(*shape)) if shape else wanted
        assert same(restore(f"{run}/checkpoint_2", like(placed_so)).state, placed_so)
    files = os.listdir(layout.dataset_folder(f"{run}/checkpoint_2"))
    assert {f"train_ds-{i:03}-of-004" for i in range(4)} <= set(files)
