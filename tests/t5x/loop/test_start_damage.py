"""A run whose checkpoints are damaged starts from the newest that can be read."""

import random
import shutil

import pytest

from fakes import damage


@pytest.fixture(scope="module")
def starter(tmp_path_factory):
    return damage.Starter(tmp_path_factory.mktemp("runs") / "sound")


def damaged(starter, tmp_path, *damages):
    shutil.copytree(starter.folder, tmp_path / "run")
    for path, kind in damages:
        damage.damage(tmp_path / "run" / path, kind, random.Random(0))
    return starter.start(tmp_path / "run"), tmp_path / "run"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("state/_METADATA", "deleted"),
        ("state/_METADATA", "a JSON list"),
        ("_CHECKPOINT_METADATA", "random bytes"),
        ("_CHECKPOINT_METADATA", "a JSON list"),
        ("_CHECKPOINT_METADATA", "a folder"),
        ("state", "deleted"),
        ("dataset", "deleted"),
        ("dataset/stream.json", "a folder"),
        ("dataset/checksums.json", "a JSON list"),
    ],
)
def test_the_newest_is_damaged(starter, tmp_path, path, kind):
    found, run = damaged(starter, tmp_path, (f"checkpoint_12/{path}", kind))
    assert found.step == 8
    assert damage.fault(found, run, {12}) is None


def test_what_is_not_needed_may_be_missing(starter, tmp_path):
    lost = ["_CHECKPOINT_METADATA", "state/_sharding", "dataset/checksums.json"]
    found, run = damaged(
        starter, tmp_path, *((f"checkpoint_12/{path}", "deleted") for path in lost)
    )
    assert found.step == 12
    assert damage.fault(found, run, set()) is None


def test_without_checksums_a_damaged_position_is_noticed_as_it_is_read(starter, tmp_path):
    lost = [("checkpoint_12/dataset/checksums.json", "deleted")]
    place = "checkpoint_12/dataset/train_ds-000-of-002"
    for ending, kind in ((".index", "deleted"), (".rows.npz", "truncated"), (".index", "emptied")):
        found, run = damaged(starter, tmp_path, *lost, (place + ending, kind))
        assert found.step == 8
        assert damage.fault(found, run, {12}) is None
        shutil.rmtree(run)


def test_all_are_damaged(starter, tmp_path):
    damages = [("checkpoint_4/state", "deleted"), ("checkpoint_8/state/_METADATA", "emptied")]
    damages.append(("checkpoint_12/_CHECKPOINT_METADATA", "a JSON list"))
    found, run = damaged(starter, tmp_path, *damages)
    assert found.step is None
    assert damage.fault(found, run, set(damage.STEPS)) is None
    assert found.error.startswith(f"All 3 checkpoints in {run} are damaged: {run}/checkpoint_12/_C")
    assert found.error.endswith("or remove them, and the same command starts over.")
    assert len(list(run.glob("checkpoint_*"))) == 3  # nothing was deleted


def test_all_have_lost_what_makes_them_complete(starter, tmp_path):
    """They are not taken for an empty folder, in which the run would begin again."""
    found, run = damaged(
        starter, tmp_path, *((f"checkpoint_{s}/state", "deleted") for s in (4, 8, 12))
    )
    assert found.step is None
    assert damage.fault(found, run, set(damage.STEPS)) is None
