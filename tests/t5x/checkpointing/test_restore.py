"""A restore reads everything or reports what it left out, and refuses a wrong checkpoint."""

import glob
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fakes.checkpoints import like, same, saved, state, zeros
from fakes.refuses import refuses
from t5x.checkpointing.config import RestoreCheckpointConfig
from t5x.checkpointing.lazy_array import DamagedCheckpoint, LazyArray
from t5x.checkpointing.reader import open_checkpoint
from t5x.checkpointing.restore import match, restore


@pytest.fixture
def run(tmp_path):
    return str(tmp_path / "run")


def without(tree, *path):
    *way, last = path
    tree = dict(tree)
    node = tree
    for key in way:
        node[key] = dict(node[key])
        node = node[key]
    del node[last]
    return tree


@pytest.mark.parametrize(
    ("wanted", "name", "setting"),
    [
        (state(width=5), "decoder/w", "MODEL"),
        (without(state(), "target", "decoder"), "target/decoder/w", "strict = False"),
        (
            state() | {"target": {"extra": np.ones(2)}},
            "target/extra",
            "fallback_to_scratch = True",
        ),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(run, monkeypatch, wanted, name, setting):
    """Before numbers are read. Only the checkpoint of another run may be restored in part."""
    folder = saved(run, 1)
    monkeypatch.setattr(LazyArray, "read", lambda *_: pytest.fail("was read"))
    with refuses(folder) as foreign:
        restore(folder, wanted, RestoreCheckpointConfig(folder), initial=zeros)
    assert name in foreign.value.why
    assert setting in foreign.value.to_set
    with refuses(folder) as own:
        restore(folder, wanted)
    assert name in own.value.why
    assert "RestoreCheckpointConfig" not in own.value.to_set


@pytest.mark.parametrize("given", ["encoder", "t5"])
def test_an_encoder_and_a_t5_are_distinguished(run, given):
    drawn, rest = {"w": np.ones(2)}, {"state": state()["state"]}
    encoder = {"encoder": {"mlp": drawn}, "mlm_head": drawn}
    t5 = {"encoder": {"relpos_bias": drawn}, "decoder": drawn}
    trees = {"encoder": {"target": encoder} | rest, "t5": {"target": t5} | rest}
    path = saved(run, 1, tree=trees.pop(given))
    (wanted,) = trees.values()
    kind = {"encoder": "an encoder", "t5": "a T5"}[given]
    with refuses(path) as refusal:
        restore(path, like(wanted))
    assert refusal.value.why.startswith(f"is of {kind}, ")


def flipped(folder):
    """Changes 16 bytes of the largest file of a checkpoint's arrays."""
    path = max(glob.glob(f"{folder}/state/**/d/*", recursive=True), key=os.path.getsize)
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        some = file.read(16)
        file.seek(-len(some), os.SEEK_CUR)
        file.write(bytes(b ^ 0x55 for b in some))


@pytest.mark.parametrize("placed", [False, True])
def test_flipped_bytes_are_damage_and_never_numbers(run, placed):
    """Numbers that do not compress are stored verbatim, so a changed one can be read."""
    noise = np.random.default_rng(0).integers(0, 2**30, (64, 64)).astype(np.int32)
    tree = {"target": {"w": noise.view(np.float32)}}
    folder = saved(run, 1, tree=tree)
    flipped(folder)
    if placed:
        tree = jax.tree.map(jnp.asarray, tree)
    with pytest.raises(DamagedCheckpoint, match="target/w"):
        restore(folder, like(tree))
    with pytest.raises(DamagedCheckpoint):
        open_checkpoint(folder)["target/w"].read()


@pytest.mark.parametrize("placed", [False, True])
@pytest.mark.parametrize("wrong", ["target/encoder/w", "state/step"])
def test_an_array_is_held_to_the_digest_of_its_writer(run, placed, wrong):
    folder = saved(run, 1)
    path = f"{folder}/_CHECKPOINT_METADATA"
    with open(path) as file:
        noted = json.load(file)
    noted["custom_metadata"]["digests"][wrong] ^= 1
    with open(path, "w") as file:
        json.dump(noted, file)
    wanted = jax.tree.map(jnp.asarray, state()) if placed else state()
    with pytest.raises(DamagedCheckpoint, match=wrong):
        restore(folder, like(wanted))
    with open(path, "w") as file:  # a later writer's, or T5X's
        json.dump(noted | {"custom_metadata": {}}, file)
    assert same(restore(folder, like(state())).state, state(1))


def test_a_partial_restore_names_missing_parameters_and_keeps_their_initial_values(run):
    folder = saved(run, 1, tree=without(state(1), "target", "decoder"))
    config = RestoreCheckpointConfig(folder, strict=False)
    restored = restore(folder, state(9), config, initial=lambda: zeros())
    assert not restored.state["target"]["decoder"]["w"].any()
    assert same(restored.state["target"]["encoder"], state(1)["target"]["encoder"])
    # The slots of a parameter that starts from scratch do so too; the others are restored.
    slots = restored.state["state"]["param_states"]
    assert not slots["decoder"]["w"]["v"].any()
    assert same(slots["encoder"], state(1)["state"]["param_states"]["encoder"])


def test_parameters_that_the_model_lacks_are_ignored_if_not_strict(run):
    folder = saved(run, 1)
    wanted = without(state(), "target", "decoder")
    del wanted["state"]
    config = RestoreCheckpointConfig(folder, strict=False)
    assert match(folder, wanted, config).ignored == ("target/decoder/w",)
    assert same(
        restore(folder, wanted, config).state,
        without({"target": state()["target"]}, "target", "decoder"),
    )


def test_an_assignment_map_renames_and_leaves_out(run):
    folder = saved(run, 1)
    rules = [(r"(.*/)body/w(/.*)?", r"\1encoder/w\2"), (r"(target|state)/.*head/.*", None)]
    wanted = {
        "target": {"body": {"w": np.ones((3, 4), np.float32)}, "head": {"b": np.ones(2)}},
        "state": {"step": np.int32(0)},
    }
    config = RestoreCheckpointConfig(folder, assignment_map=rules, strict=False)
    restored = restore(folder, wanted, config, initial=lambda: wanted)
    assert np.array_equal(restored.state["target"]["body"]["w"], state()["target"]["encoder"]["w"])
    assert np.array_equal(restored.state["target"]["head"]["b"], wanted["target"]["head"]["b"])
    assert restored.step == 1
    for rule, name in (
        (("nothing/.*", None), "nothing/.*"),
        (("target/body/w", "target/elsewhere"), "target/elsewhere"),
    ):
        config = RestoreCheckpointConfig(folder, assignment_map=[rule], strict=False)
        with refuses("RestoreCheckpointConfig.assignment_map") as refusal:
            restore(folder, wanted, config, initial=lambda: wanted)
        assert name in refusal.value.why


@pytest.mark.parametrize("other", ["none", "slots", "shapes", "known"])
def test_another_optimizer_starts_from_scratch_but_is_refused_on_resume(run, other):
    tree = state(7)
    if other == "none":
        tree = {"target": tree["target"]}
    elif other == "slots":
        tree["state"]["param_states"]["encoder"]["w"].pop("m")
    elif other == "shapes":
        tree["state"]["param_states"]["encoder"]["w"]["v"] = np.ones(1, np.float32)
    folder = saved(run, 7, tree=tree)
    config = RestoreCheckpointConfig(folder)
    known = {"other_optimizer": "it is Adam's" if other == "known" else None}
    assert match(folder, state(0), config, **known).why_no_optimizer
    restored = restore(folder, state(0), config, initial=zeros, **known)
    assert same(restored.state["target"], state(7)["target"])
    assert same(restored.state["state"]["param_states"], zeros()["state"]["param_states"])
    assert restored.step == 7
    with refuses(folder) as refusal:
        restore(folder, state(0), initial=zeros, **known)
    assert "OPTIMIZER" in refusal.value.to_set
