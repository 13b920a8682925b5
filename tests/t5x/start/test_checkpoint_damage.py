"""A run whose checkpoints are damaged starts from the newest that can be read."""

import random
import shutil

import pytest

from fakes import damage, toy
from fakes.refuses import refuses
from t5x.checkpointing import layout


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
        ("dataset/stream.json", "a link to nothing"),
        ("state/manifest.ocdbt", "a link to nothing"),
        ("dataset/checksums.json", "deleted"),
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


@pytest.mark.parametrize("source", ["checkpoint_8", "another run's checkpoint_12"])
def test_a_data_position_of_another_save_is_damage(source, starter, tmp_path):
    shutil.copytree(starter.folder, tmp_path / "run")
    theirs = tmp_path / "run/checkpoint_8"
    if source != "checkpoint_8":
        toy.train(tmp_path / "other", train_dataset_cfg=starter.data, total_steps=12)
        theirs = tmp_path / "other/checkpoint_12"
    shutil.rmtree(tmp_path / "run/checkpoint_12/dataset")
    shutil.copytree(theirs / "dataset", tmp_path / "run/checkpoint_12/dataset")
    found = starter.start(tmp_path / "run")
    assert found.step == 8
    assert damage.fault(found, tmp_path / "run", {12}) is None


def test_a_checkpoint_of_another_name_is_refused_by_its_own(starter, tmp_path):
    shutil.copytree(starter.folder, tmp_path / "run")
    shutil.copytree(tmp_path / "run/checkpoint_8", tmp_path / "run/checkpoint_16")
    found = starter.start(tmp_path / "run")
    assert "checkpoint_16 holds the state of step 8" in found.error
    assert (tmp_path / "run/checkpoint_16").exists()
    for settings in ({}, {"dry_run": True}, {"total_steps": 20, "dry_run": True}):  # 16 is the end
        with refuses(str(tmp_path / "run/checkpoint_16")):
            toy.train(tmp_path / "run", train_dataset_cfg=starter.data, **settings)


@pytest.mark.parametrize("odd", ["a file", "a pipe", "a link to nothing", "a link to itself"])
def test_what_only_has_the_name_of_a_checkpoint_is_refused(odd, starter, tmp_path):
    shutil.copytree(starter.folder, tmp_path / "run")
    (tmp_path / "run/checkpoint_99").touch()
    damage.damage(tmp_path / "run/checkpoint_99", "emptied" if odd == "a file" else odd)
    found = starter.start(tmp_path / "run")
    assert f"{tmp_path}/run/checkpoint_99" in found.error
    assert layout.all_steps(str(tmp_path / "run")) == [4, 8, 12]


def test_names_that_are_no_steps_are_left_alone(starter, tmp_path):
    shutil.copytree(starter.folder, tmp_path / "run")
    names = ("checkpoint_013", "checkpoint_\u0661", "checkpoint_-1", "checkpoint_")
    for name in names:
        (tmp_path / "run" / name).mkdir()
    assert starter.start(tmp_path / "run").step == 12
    assert all((tmp_path / "run" / name).exists() for name in names)


def test_a_damaged_checkpoint_on_another_disk_is_unlinked_and_stays_there(starter, tmp_path):
    shutil.copytree(starter.folder, tmp_path / "run")
    shutil.move(tmp_path / "run/checkpoint_12", tmp_path / "disk")
    (tmp_path / "run/checkpoint_12").symlink_to(tmp_path / "disk")
    assert starter.start(tmp_path / "run").step == 12
    damage.damage(tmp_path / "disk/state/_METADATA", "a JSON list")
    found = starter.start(tmp_path / "run")
    assert found.step == 8
    assert damage.fault(found, tmp_path / "run", {12}) is None
    assert not (tmp_path / "run/checkpoint_12").is_symlink()
    assert (tmp_path / "disk/state").exists()


def test_all_are_damaged(starter, tmp_path):
    damages = [("checkpoint_4/state", "deleted"), ("checkpoint_8/state/_METADATA", "emptied")]
    damages.append(("checkpoint_12/_CHECKPOINT_METADATA", "a JSON list"))
    found, run = damaged(starter, tmp_path, *damages)
    assert found.step is None
    assert damage.fault(found, run, set(damage.STEPS)) is None
    newest, oldest = (found.error.index(f"{run}/checkpoint_{step}") for step in (12, 4))
    assert newest < oldest < found.error.rindex("remove")
    assert len(list(run.glob("checkpoint_*"))) == 3  # nothing was deleted


def test_all_have_lost_what_makes_them_complete(starter, tmp_path):
    """They are not taken for an empty folder, in which the run would begin again."""
    found, run = damaged(
        starter, tmp_path, *((f"checkpoint_{s}/state", "deleted") for s in (4, 8, 12))
    )
    assert found.step is None
    assert damage.fault(found, run, set(damage.STEPS)) is None
