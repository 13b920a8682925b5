"""Orbax's description of a checkpoint's files in a bucket of S3."""

import pytest
from orbax.checkpoint._src.path import atomicity, gcs_utils
from orbax.checkpoint._src.serialization import tensorstore_utils

from t5x.checkpointing import orbax_s3


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Put back what `provide` replaces."""
    for module, name in (
        (tensorstore_utils, "_use_gcs_driver"),
        (gcs_utils, "get_kvstore_for_gcs"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))


def specs(folder):
    """Return how tensorstore opens an array, and a file of metadata, in a folder."""
    database = tensorstore_utils.build_kvstore_tspec(folder, "a", use_ocdbt=True)
    file = tensorstore_utils.build_kvstore_tspec(folder, "_sharding", use_ocdbt=False)
    return database["base"], file


def test_arrays_and_metadata_go_to_the_bucket(monkeypatch):
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store")
    orbax_s3.provide()
    server = {"driver": "s3", "bucket": "b", "endpoint": "http://store", "aws_region": "us-east-1"}
    assert specs("s3://b/run/checkpoint_1/state") == (
        server | {"path": "run/checkpoint_1/state/"},
        server | {"path": "run/checkpoint_1/state/_sharding/"},
    )


@pytest.mark.parametrize("folder", ["/runs/tiny", "gs://b/run"])
def test_other_folders_are_as_before(folder):
    before = specs(folder)
    orbax_s3.provide()
    assert specs(folder) == before


def test_a_save_is_committed_by_a_file():
    assert orbax_s3.committed_by_file("s3://b/run") is atomicity.CommitFileTemporaryPath
    assert orbax_s3.committed_by_file("gs://b/run") is None
    assert orbax_s3.committed_by_file("/runs/tiny") is None
