"""Files of a job, local or gs://, that get their names only once they are complete."""

import contextlib
import json
import uuid
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tasks.cache.plan import CacheJob

exists = tf.io.gfile.exists


@contextlib.contextmanager
def renamed(
    job: CacheJob, path: str, opener=lambda path: tf.io.gfile.GFile(path, "wb")
) -> Iterator[Any]:
    """Open a file for writing that is renamed to `path` when all has been written."""
    tf.io.gfile.makedirs(job.scratch)
    unfinished = f"{job.scratch}/{uuid.uuid4().hex}.writing"
    with opener(unfinished) as file:
        if isinstance(file, tf.io.gfile.GFile):
            file.write(b"")  # otherwise an empty file would not be created
        yield file
    tf.io.gfile.rename(unfinished, path, overwrite=True)


def write_json(job: CacheJob, path: str, value) -> None:
    """Write `value` with sorted keys."""
    with renamed(job, path) as file:
        file.write(json.dumps(value, indent=2, sort_keys=True).encode())


def read_json(path: str) -> Any:
    """Return the content of a JSON file."""
    with tf.io.gfile.GFile(path) as file:
        return json.loads(file.read())
