"""A file has its name only once it is complete."""

import pytest

from tasks.cache import atomic_files
from tasks.cache.plan import CacheJob


def test_a_file_that_fails_halfway_never_gets_its_name(tmp_path):
    job, path = CacheJob("task", str(tmp_path)), str(tmp_path / "file")

    def write_half():
        with atomic_files.renamed(job, path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert not atomic_files.exists(path)
    with atomic_files.renamed(job, path):
        pass
    assert (tmp_path / "file").read_bytes() == b""
