"""MODEL_DIR: where a run resumes, in the documented order."""

import dataclasses
import pathlib
import shutil
import types

import jax
import numpy as np
import optax
import pytest

from fakes import toy
from t5x import checkpoints, optimizers
from t5x.checkpointing import layout
from t5x.checkpointing.config import RestoreCheckpointConfig, SaveCheckpointConfig
from t5x.checkpointing.lazy_array import DamagedCheckpoint
from t5x.loop import model_dir
from t5x.partitioning import PjitPartitioner
from t5x.train_state import state_specs
from tasks import vocabularies

STATE = {"target": {"w": np.zeros(2, np.float32)}, "state": {"step": np.int32(3)}}


def place(folder):
    (pathlib.Path(folder) / "place").write_text("here")


def checkpoint(folder, *steps, dataset=False):
    config = SaveCheckpointConfig(save_dataset=True)
    with checkpoints.Checkpointer(str(folder), config) as checkpointer:
        for step in steps:
            checkpointer.save(step, STATE, place if dataset else None)
    return str(folder)


@pytest.mark.parametrize("folder", ["new/run", "old/run", "old"])
def test_a_check_leaves_nothing(folder, tmp_path):
    (tmp_path / "old").mkdir()
    model_dir.check_writable(str(tmp_path / folder))
    assert list(tmp_path.rglob("*")) == [tmp_path / "old"]


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ValueError, match=r"MODEL_DIR is .*file/run, which cannot be written \("
    ) as e:
        model_dir.check_writable(str(tmp_path / "file" / "run"))
    assert "\n" not in str(e.value)


def test_a_bucket_that_cannot_be_opened_is_refused_at_once():
    with pytest.raises(ValueError, match=r"^MODEL_DIR is az://b/run, but .* mount the bucket"):
        model_dir.check_writable("az://b/run")


def test_a_folder_that_hosts_do_not_share_is_refused(tmp_path, monkeypatch):
    """Host 1 of a pod, whose host 0 writes elsewhere."""
    monkeypatch.setattr(model_dir, "_write_probe", lambda *_: None)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    with pytest.raises(ValueError, match=r"host 1 does not share with host 0.* gs:// bucket") as e:
        model_dir.check_writable(str(tmp_path), seconds=0.0)
    assert "\n" not in str(e.value)


def test_a_damaged_checkpoint_of_the_run_is_skipped_for_the_previous_one(tmp_path):
    own = checkpoint(tmp_path / "own", 2, 5, 9)
    damage = DamagedCheckpoint("It is damaged.")
    start = model_dir.find_start(own, None)
    earlier = model_dir.earlier_start(start, damage)
    passed = ("It is damaged.",)
    assert earlier == dataclasses.replace(start, path=f"{own}/checkpoint_5", passed=passed)
    earliest = model_dir.earlier_start(earlier, damage)
    with pytest.raises(
        DamagedCheckpoint, match=r"All 3 .* damaged: It is damaged, and It is da.*, or remove"
    ):
        model_dir.earlier_start(earliest, damage)
    assert layout.all_steps(own) == [2, 5, 9]  # nothing goes before something was read
    model_dir.delete_damaged_after(earliest)
    assert layout.all_steps(own) == [2]
    foreign = model_dir.find_start(str(tmp_path / "new"), RestoreCheckpointConfig(own))
    with pytest.raises(DamagedCheckpoint, match=r"It is damaged\.$"):
        model_dir.earlier_start(foreign, damage)
    model_dir.delete_damaged_after(foreign)
    model_dir.delete_damaged_after(model_dir.find_start(str(tmp_path / "new"), None))


@pytest.mark.parametrize("how", ["cut", "flipped", "gone"])
def test_a_damaged_place_in_the_data_is_known(tmp_path, how):
    own = checkpoint(tmp_path / "own", 2, dataset=True)
    start = model_dir.find_start(own, None)
    start.check_data_position()
    path = pathlib.Path(start.dataset_folder) / "place"
    if how == "gone":
        path.unlink()
    else:
        path.write_text("her" if how == "cut" else "hare")
    with pytest.raises(DamagedCheckpoint, match=r"dataset/place is (missing|cut off or damaged)"):
        start.check_data_position()


def test_the_runs_own_checkpoint_comes_before_the_one_it_began_with(tmp_path):
    own = checkpoint(tmp_path / "own", 2, 5)
    other = checkpoint(tmp_path / "other", 9)
    restore = RestoreCheckpointConfig(other, mode="latest")
    assert model_dir.find_start(own, restore).path == f"{own}/checkpoint_5"
    assert model_dir.find_start(own, restore).config is None

    started = model_dir.find_start(str(tmp_path / "new"), restore)
    assert started.path == f"{other}/checkpoint_9"
    assert started.config is restore

    for none in (None, RestoreCheckpointConfig([])):
        scratch = model_dir.find_start(str(tmp_path / "new"), none)
        assert (scratch.path, scratch.dataset_folder) == (None, None)


def test_training_starts_from_one_checkpoint(tmp_path):
    other = checkpoint(tmp_path / "other", 1)
    with pytest.raises(ValueError, match=r"mode is 'all'.* set it to 'specific' or 'latest'"):
        model_dir.find_start(str(tmp_path / "new"), RestoreCheckpointConfig(other, mode="all"))
    with pytest.raises(ValueError, match=r"dtype is 'bfloat16', and training keeps its parameters"):
        model_dir.find_start(
            str(tmp_path / "new"), RestoreCheckpointConfig(other, dtype="bfloat16")
        )
    with pytest.raises(ValueError, match=r"no folder checkpoint_<step>"):
        model_dir.find_start(str(tmp_path / "new"), RestoreCheckpointConfig(str(tmp_path)))


def test_the_place_in_the_data_is_the_runs_own_unless_asked_for(tmp_path):
    path = checkpoint(tmp_path / "run", 4, dataset=True)
    folder = f"{path}/checkpoint_4/dataset"
    start = model_dir.Start(f"{path}/checkpoint_4", None)
    assert start.dataset_folder == folder
    for wanted, found in ((False, None), (True, folder)):
        config = RestoreCheckpointConfig(path, restore_dataset=wanted)
        assert model_dir.Start(start.path, config).dataset_folder == found
    assert model_dir.find_start(path, None).dataset_folder == folder
    assert model_dir.find_start(path, None, has_position=False).dataset_folder is None


def test_steps_of_another_run_count_on(tmp_path):
    path = checkpoint(tmp_path / "run", 4)
    begun = model_dir.Start(f"{path}/checkpoint_4", RestoreCheckpointConfig(path))
    resumed, scratch = model_dir.find_start(path, None), model_dir.Start(None, None)
    assert [s.foreign_step for s in (begun, resumed, scratch)] == [4, 0, 0]
    assert [s.is_own for s in (begun, resumed, scratch)] == [False, True, False]
    unnamed = model_dir.Start(f"{path}/converted", RestoreCheckpointConfig(path))
    assert [s.known_step for s in (begun, scratch, unnamed)] == [4, 0, None]
    assert unnamed.step == 0


def test_a_vocabulary_that_is_the_copy_itself_survives(tmp_path):
    copy = tmp_path / "vocabulary.model"
    copy.write_bytes(b"pieces" * 200_000)
    model = toy.model()
    specs = state_specs(model, PjitPartitioner(2))
    model.output_vocabulary = types.SimpleNamespace(sentencepiece_model_file=str(copy))
    model_dir.write_description(str(tmp_path), model, specs)
    assert copy.read_bytes() == b"pieces" * 200_000


def test_the_tokenizer_of_an_encoder_is_kept(tmp_path):
    model = toy.model()
    specs = state_specs(model, PjitPartitioner(2))
    path = f"{vocabularies.ro_mini_wordpiece()}/tokenizer.json"
    model.input_vocabulary = types.SimpleNamespace(tokenizer_file=path)
    for _ in range(2):
        model_dir.write_description(str(tmp_path), model, specs)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        wanted = pathlib.Path(vocabularies.ro_mini_wordpiece(), name).read_bytes()
        assert (tmp_path / "tokenizer" / name).read_bytes() == wanted


def test_a_run_is_described_by_its_parameters(tmp_path):
    model = toy.shared_model()
    specs = state_specs(model, PjitPartitioner(2))
    model_dir.write_description(str(tmp_path), model, specs)
    lines = (tmp_path / "model-info.txt").read_text().splitlines()
    count = sum(x.size for x in jax.tree.leaves(specs.state.params))
    assert lines[-1] == f"parameters: {count:,}"
    (kernel,) = [line for line in lines if line.startswith("encoder/layers_0/mlp/wi/kernel ")]
    assert "(16, 32)" in kernel
    assert "model" in kernel
    assert not (tmp_path / "vocabulary.model").exists()  # bytes have no file


def test_a_run_keeps_its_vocabulary(tmp_path):
    own = model_dir.Start(f"{tmp_path}/checkpoint_1", None)
    other = model_dir.Start(own.path, RestoreCheckpointConfig(own.path))
    (tmp_path / "mine.model").write_text("pieces")
    model = types.SimpleNamespace(
        input_vocabulary=None,
        output_vocabulary=types.SimpleNamespace(
            sentencepiece_model_file=str(tmp_path / "mine.model")
        ),
    )
    model_dir.check_vocabulary(own, model)  # of upstream's run there is no copy
    (tmp_path / "vocabulary.model").write_text("pieces")
    model_dir.check_vocabulary(own, model)
    (tmp_path / "mine.model").write_text("other pieces")
    model_dir.check_vocabulary(other, model)  # it starts a run of its own
    with pytest.raises(ValueError, match=r"its vocabulary.model, which differs from .*mine.model"):
        model_dir.check_vocabulary(own, model)
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer/tokenizer.json").write_text("words")
    (tmp_path / "other.json").write_text("other words")
    encoder = types.SimpleNamespace(
        output_vocabulary=None,
        input_vocabulary=types.SimpleNamespace(tokenizer_file=str(tmp_path / "other.json")),
    )
    with pytest.raises(ValueError, match=r"with its tokenizer/tokenizer.json"):
        model_dir.check_vocabulary(own, encoder)


def test_relative_steps_count_from_where_the_run_began(tmp_path):
    own = str(tmp_path / "own")
    begun = checkpoint(tmp_path / "other", 30, 70)
    specific = RestoreCheckpointConfig(f"{begun}/checkpoint_30", "specific")
    assert model_dir.last_step(own, 100, None, specific) == 100
    assert model_dir.last_step(own, 100, 0, specific) == 100
    assert model_dir.last_step(own, 0, 5, specific) == 35
    assert model_dir.last_step(own, 0, 5, RestoreCheckpointConfig(begun)) == 75
    assert model_dir.last_step(own, 100, 5, None) == 5
    assert model_dir.last_step(own, 100, 5, RestoreCheckpointConfig(None)) == 5


def test_relative_steps_stay_where_they_began_though_the_source_trains_on(tmp_path):
    own, begun = str(tmp_path / "own"), checkpoint(tmp_path / "other", 30)
    latest = RestoreCheckpointConfig(begun)
    (tmp_path / "own").mkdir()
    model_dir.record_first_step(own, 30)
    checkpoint(tmp_path / "other", 70)
    assert model_dir.last_step(own, 0, 5, latest) == 75  # nothing is saved of the first start
    checkpoint(tmp_path / "own", 32)
    assert model_dir.last_step(own, 0, 5, latest) == 35
    shutil.rmtree(begun)
    assert model_dir.last_step(own, 0, 5, latest) == 35


def test_relative_steps_need_a_step_in_the_checkpoints_name(tmp_path):
    own = str(tmp_path / "own")
    begun = checkpoint(tmp_path / "other", 30)
    renamed = pathlib.Path(begun, "checkpoint_30").rename(tmp_path / "base")
    with pytest.raises(
        ValueError, match=r"relative_steps is set, but the name of .*/base"
    ) as caught:
        model_dir.last_step(own, 0, 5, RestoreCheckpointConfig(str(renamed), "specific"))
    assert "\n" not in str(caught.value)


def test_states_of_the_same_names_are_distinguished_by_the_runs_description(tmp_path):
    model, path = toy.model(), f"{tmp_path}/checkpoint_8/"
    unnamed = optimizers.chain([optax.sgd(0.1)])

    def found(optimizer):
        model.optimizer_def = optimizer
        return model_dir.saved_by_another(path, model)

    assert found(optimizers.adamw_scaled()) is None  # without a description
    model.optimizer_def = optimizers.adamw()
    specs = state_specs(model, PjitPartitioner(2))
    model_dir.write_description(str(tmp_path), model, specs)
    assert found(optimizers.adamw(beta2=0.9)) is None
    said = "the saved state is of optimizers.adamw, not of optimizers.adamw_scaled"
    assert found(optimizers.adamw_scaled()) == said
    assert found(unnamed) is None  # an optimizer without a name
    model.optimizer_def = unnamed
    model_dir.write_description(str(tmp_path), model, specs)
    assert found(optimizers.adamw_scaled()) is None
    (tmp_path / "model-info.txt").write_bytes(b"\xff\nparameters: 5\n")  # not ours
    assert found(optimizers.adamw_scaled()) is None
