"""A disk that is full.

with full_disk(100), pytest.raises(OSError):
    path.write_bytes(bytes(200))
"""

import contextlib
import resource


@contextlib.contextmanager
def full_disk(limit):
    """Let no file grow past `limit` bytes; Python ignores the signal of such a write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
