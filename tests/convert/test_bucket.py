"""A conversion appears in a bucket complete, with config.json as its last file."""

import json

import fsspec
import pytest
import safetensors.torch
from fsspec.implementations.memory import MemoryFileSystem

from common.errors import Failure
from convert import __main__ as converter
from convert import atomic_output, bucket
from fakes.convert_fakes import golden_run
from fakes.refuses import refuses

OUT = "memory://models/ro"


@pytest.fixture(autouse=True)
def store():
    """The bucket, empty before and after."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


def test_a_run_is_converted_into_a_bucket_again_and_again(tmp_path, store, monkeypatch):
    golden_run(tmp_path / "run")
    written = []
    put = MemoryFileSystem.put_file

    def noted(self, local, path, **kwargs):
        written.append(path)
        return put(self, local, path, **kwargs)

    monkeypatch.setattr(MemoryFileSystem, "put_file", noted)
    flags = ["--vocabulary", "none", "--formats", "pytorch", "--no_verify", "--out", OUT]
    assert converter.main([str(tmp_path / "run"), *flags]) == 0
    folder = "/models/ro/checkpoint_25"
    assert written[-1] == f"{folder}/config.json"
    store.pipe_file(f"{folder}/flax_model.msgpack", b"of an earlier conversion")
    assert converter.main([str(tmp_path / "run"), *flags, "--dtype", "bfloat16"]) == 0
    names = {path.removeprefix(f"{folder}/") for path in store.find("/models")}
    assert {"config.json", "conversion.json", "model.safetensors", "README.md"} <= names
    assert "flax_model.msgpack" not in names
    assert json.loads(store.cat_file(f"{folder}/config.json"))["torch_dtype"] == "bfloat16"
    assert safetensors.torch.load(store.cat_file(f"{folder}/model.safetensors"))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def finished(folder):
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text("weights")
    atomic_output.write_record(folder, {})
    return folder


def test_an_upload_that_breaks_off_leaves_no_config(tmp_path, store, monkeypatch):
    folder = finished(tmp_path / "done")
    bucket.upload(folder, OUT)

    def fail(*_, **__):
        raise OSError("connection lost")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "put_file", fail)
        with refuses(OUT, kind=Failure) as failure:
            bucket.upload(folder, OUT)
    assert "connection lost" in failure.value.why
    assert not store.exists("/models/ro/config.json")
    bucket.upload(folder, OUT)
    assert store.exists("/models/ro/config.json")


@pytest.mark.parametrize("written", range(4))
def test_a_first_upload_that_breaks_off_is_taken_up_again(tmp_path, store, monkeypatch, written):
    folder = finished(tmp_path / "done")
    (folder / "README.md").write_text("card")
    put, files = MemoryFileSystem.put_file, []

    def break_off(self, local, path, **kwargs):
        if len(files) == written:
            raise OSError("connection lost")
        files.append(path)
        return put(self, local, path, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "put_file", break_off)
        with refuses(OUT, kind=Failure):
            bucket.upload(folder, OUT)
    bucket.upload(folder, OUT)
    assert len(store.find("/models/ro")) == 4


def test_other_files_are_left_alone(tmp_path, store):
    store.pipe_file("/models/ro/thesis.tex", b"precious")
    with refuses(OUT):
        bucket.upload(finished(tmp_path / "done"), OUT)
    assert store.find("/models") == ["/models/ro/thesis.tex"]


def test_a_place_that_cannot_be_written_is_refused_before_the_conversion(tmp_path, store, capsys):
    with pytest.raises(SystemExit, match="2"):
        converter.main([str(tmp_path / "absent"), "--out", "nosuch://bucket/ro"])
    assert capsys.readouterr().err.startswith("Error: --out is 'nosuch://bucket/ro', which cannot")
    bucket.check(OUT)
    assert store.find("/models") == []
