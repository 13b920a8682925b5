"""`tf.io.gfile` for addresses that TensorFlow cannot open, here with fsspec's store in memory."""

import datetime
import uuid

import fsspec
import pytest
import tensorflow as tf
from etils import epath

from command_line import buckets


@pytest.fixture
def gfile(monkeypatch):
    for version in (tf, tf.compat.v2):
        for name in (*buckets._NAMES, "GFile"):
            monkeypatch.setattr(version.io.gfile, name, getattr(version.io.gfile, name))
        create = version.summary.create_file_writer
        monkeypatch.setattr(version.summary, "create_file_writer", create)
    monkeypatch.setattr(buckets, "SCHEMES", ("memory",))
    buckets._system.cache_clear()
    buckets.install(tf)
    yield tf.io.gfile
    buckets._system.cache_clear()


@pytest.fixture
def folder():
    return f"memory:///{uuid.uuid4().hex}"


def write(gfile, path, content, mode="w"):
    with gfile.GFile(path, mode) as file:
        file.write(content)


def test_a_file_is_written_appended_to_and_read(gfile, folder):
    path = f"{folder}/a/șase.txt"
    write(gfile, path, "unu\ndoi\n")
    write(gfile, path, "șase\n", "a")
    write(gfile, f"{folder}/new", b"\x00\xff", "ab")
    with gfile.GFile(path) as file:
        assert list(file) == ["unu\n", "doi\n", "șase\n"]
        file.seek(8)
        assert (file.read(2), file.read(), file.tell(), file.size()) == ("șa", "se\n", 14, 14)
    with gfile.GFile(f"{folder}/new", "rb") as file:
        assert (file.read(1), file.read()) == (b"\x00", b"\xff")


def test_a_flush_publishes_and_nothing_else_does(gfile, folder):
    with gfile.GFile(f"{folder}/log", "w") as file:
        file.write("unu")
        assert not gfile.exists(f"{folder}/log")
        file.flush()
        assert gfile.GFile(f"{folder}/log").read() == "unu"
        file.write(" doi")
    assert gfile.GFile(f"{folder}/log").read() == "unu doi"


def test_an_empty_file_is_made_and_an_opened_one_is_left(gfile, folder):
    gfile.GFile(f"{folder}/empty", "w").close()
    assert gfile.stat(f"{folder}/empty").length == 0
    gfile.GFile(f"{folder}/absent", "a").close()
    assert not gfile.exists(f"{folder}/absent")


def test_folders_are_listed_moved_and_removed(gfile, folder, tmp_path):
    gfile.makedirs(f"{folder}/b/c")
    write(gfile, f"{folder}/a.txt", "a")
    write(gfile, f"{folder}/b/d.txt", "dd")
    assert (gfile.isdir(f"{folder}/b"), gfile.isdir(f"{folder}/a.txt")) == (True, False)
    assert not gfile.isdir(f"{folder}/none")
    assert gfile.listdir(folder) == ["a.txt", "b"]
    assert [gfile.glob(f"{folder}/*.txt"), gfile.glob(f"{folder}/none")] == [
        [f"{folder}/a.txt"],
        [],
    ]
    assert next((names, files) for _, names, files in gfile.walk(folder)) == (["b"], ["a.txt"])
    stat = gfile.stat(f"{folder}/b/d.txt")
    assert (stat.length, stat.is_directory) == (2, False)
    assert abs(stat.mtime_nsec / 1e9 - datetime.datetime.now().timestamp()) < 60
    gfile.copy(f"{folder}/b/d.txt", str(tmp_path / "d.txt"))
    assert (tmp_path / "d.txt").read_text() == "dd"
    gfile.rename(f"{folder}/a.txt", f"{folder}/b/d.txt", overwrite=True)
    assert gfile.GFile(f"{folder}/b/d.txt").read() == "a"
    gfile.rmtree(f"{folder}/b")
    assert not gfile.exists(f"{folder}/b/d.txt")


def test_errors_are_tensorflows(gfile, folder):
    write(gfile, f"{folder}/a", "a")
    write(gfile, f"{folder}/b/c", "a")
    with pytest.raises(tf.errors.NotFoundError):
        gfile.GFile(f"{folder}/none").read()
    with pytest.raises(tf.errors.NotFoundError):
        gfile.remove(f"{folder}/none")
    with pytest.raises(tf.errors.NotFoundError):
        gfile.rmtree(f"{folder}/none")
    with pytest.raises(tf.errors.AlreadyExistsError):
        gfile.rename(f"{folder}/a", f"{folder}/b/c")
    with pytest.raises(tf.errors.FailedPreconditionError, match="cannot rename"):
        gfile.rename(f"{folder}/b", f"{folder}/d")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionError("no"), tf.errors.PermissionDeniedError),
        (ConnectionError("no"), tf.errors.UnavailableError),
        (type("NoCredentialsError", (Exception,), {})("no"), tf.errors.PermissionDeniedError),
        (
            type("HTTPClientError", (Exception,), {"__module__": "botocore.exceptions"})("no"),
            tf.errors.UnavailableError,
        ),
        (TypeError("no"), TypeError),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_what_a_store_raises_gets_tensorflows_kind(error, kind, gfile, folder, monkeypatch):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "info", refuse)
    with pytest.raises(kind, match="no"):
        gfile.stat(f"{folder}/a")


def test_other_paths_are_tensorflows_and_a_file_is_a_gfile(gfile, folder, tmp_path):
    theirs = gfile.GFile(str(tmp_path / "a"), "w")
    ours = gfile.GFile(f"{folder}/a", "w")
    assert type(theirs).__module__.startswith("tensorflow")
    assert isinstance(theirs, gfile.GFile)
    assert isinstance(ours, gfile.GFile)
    assert not isinstance(3, gfile.GFile)
    gfile.makedirs(str(tmp_path / "b"))
    assert (tmp_path / "b").is_dir()
    assert gfile.exists(str(tmp_path / "b"))
    assert tf.compat.v2.io.gfile.GFile is gfile.GFile  # which seqio uses
    buckets.install(tf)  # a second time changes nothing
    assert gfile.GFile(f"{folder}/a", "w").name == f"{folder}/a"


def test_events_are_there_after_a_flush(gfile, folder, tmp_path):
    writer = tf.summary.create_file_writer(f"{folder}/train")
    with writer.as_default():
        tf.summary.scalar("loss", 1.0, step=1)
    writer.flush()
    (name,) = gfile.listdir(f"{folder}/train")
    gfile.copy(f"{folder}/train/{name}", str(tmp_path / name))
    found = [event.step for event in tf.compat.v1.train.summary_iterator(str(tmp_path / name))]
    assert found == [0, 1]
    assert list(tmp_path.iterdir()) == [tmp_path / name]
    with writer.as_default():
        tf.summary.scalar("loss", 0.5, step=2)
    writer.close()
    writer.close()
    gfile.copy(f"{folder}/train/{name}", str(tmp_path / name), overwrite=True)
    found = [event.step for event in tf.compat.v1.train.summary_iterator(str(tmp_path / name))]
    assert found == [0, 1, 2]
    tf.summary.create_file_writer(str(tmp_path / "local")).close()
    assert (tmp_path / "local").is_dir()


def test_files_that_c_plus_plus_writes_are_copied(gfile, folder, tmp_path):
    with buckets.local_copy(f"{folder}/position", (".a", ".b")) as path:
        for ending in (".a", ".b"):
            with open(path + ending, "w") as file:
                file.write(ending)
    assert gfile.listdir(folder) == ["position.a", "position.b"]
    with buckets.local_copy(f"{folder}/position", (".a", ".b"), read=True) as path:
        with open(f"{path}.b") as file:
            assert file.read() == ".b"
    with buckets.local_copy(str(tmp_path / "x"), (".a",)) as path:
        assert path == str(tmp_path / "x")


def test_the_server_is_that_of_awss_variables(monkeypatch):
    for name in ("ENDPOINT_URL", "ENDPOINT_URL_S3", "REGION", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    assert buckets.s3_server() == {}
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert buckets.s3_server() == {"aws_region": "eu-west-1"}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert buckets.s3_server() == {"endpoint": "http://store", "aws_region": "eu-north-1"}
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3")
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert buckets.s3_server() == {"endpoint": "http://s3", "aws_region": "us-east-1"}


def test_only_addresses_of_a_bucket_are_opened_here():
    assert buckets.is_here("s3://bucket/run")
    assert buckets.is_here(epath.Path("s3://bucket/run"))
    for other in ("runs/tiny", "s3", "gs://bucket/run", True, None):
        assert not buckets.is_here(other)
