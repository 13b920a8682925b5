import os
import shutil

from convert.run import model_dir
from fakes.paths import ROOT
from fakes.refuses import refuses

CHECKPOINT = ROOT / "tests" / "golden" / "t5_1_0" / "legacy" / "checkpoint_25"


def test_a_run_gives_its_complete_checkpoints(tmp_path):
    shutil.copytree(CHECKPOINT, tmp_path / "checkpoint_25")
    shutil.copytree(CHECKPOINT, tmp_path / "checkpoint_100")
    (tmp_path / "checkpoint_200.orbax-checkpoint-tmp-1").mkdir()
    (tmp_path / "checkpoint_300").mkdir()  # a save that was cut short
    run = model_dir.open_run(str(tmp_path))
    assert list(run.checkpoints) == [25, 100]
    assert model_dir.open_run(str(tmp_path / "checkpoint_100")).checkpoints == {
        100: str(tmp_path / "checkpoint_100")
    }


def test_gin_and_vocabulary_are_beside_the_checkpoints(tmp_path):
    shutil.copytree(CHECKPOINT, tmp_path / "checkpoint_25")
    run = model_dir.open_run(str(tmp_path / "checkpoint_25"))
    assert run.gin() is None
    assert run.vocabulary() is None
    (tmp_path / "operative_config.gin").write_text("B = 2")
    assert run.gin() == "B = 2"
    (tmp_path / "config.gin").write_text("A = 1")
    (tmp_path / "vocabulary.model").write_bytes(b"")
    assert run.gin() == "A = 1"
    assert run.vocabulary() == str(tmp_path / "vocabulary.model")


def test_the_newest_run_is_the_one_that_saved_last(tmp_path):
    with refuses(tmp_path):
        model_dir.newest_run(tmp_path)
    for age, name in enumerate(("new", "old")):
        folder = tmp_path / name / "checkpoint_25"
        shutil.copytree(CHECKPOINT, folder)
        os.utime(folder, (10**9 - age, 10**9 - age))
    shutil.copytree(CHECKPOINT, tmp_path / "new_hf" / "checkpoint_25")
    assert model_dir.newest_run(tmp_path) == str(tmp_path / "new")
