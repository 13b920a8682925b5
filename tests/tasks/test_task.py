"""The task of all tasks finds its cache in the folders that gin names."""

import pytest

from tasks.task import folders


def test_a_folder_may_be_one_path_or_several():
    assert folders() == []
    assert folders("gs://bucket/caches") == ["gs://bucket/caches"]
    assert folders(("a", "b")) == ["a", "b"]
    with pytest.raises(ValueError, match="s3://b/caches"):  # which TensorFlow cannot read
        folders(["/caches", "s3://b/caches"])
