"""Files of a job that have their names only once they are whole, local or gs://.

with renamed(job, path) as file: file.write(b"...")
write_json(job, path, value); read_json(path)
"""

import contextlib
import json
import uuid

import tensorflow as tf

from tasks.cache.plan import Job

finished = tf.io.gfile.exists


@contextlib.contextmanager
def renamed(job: Job, path: str, opener=lambda path: tf.io.gfile.GFile(path, "wb")):
    """Opens a file for writing that is called `path` when all has been written."""
    tf.io.gfile.makedirs(job.scratch)
    unfinished = f"{job.scratch}/{uuid.uuid4().hex}.writing"
    with opener(unfinished) as file:
        if isinstance(file, tf.io.gfile.GFile):
            file.write(b"")  # else an empty file would not be made
        yield file
    tf.io.gfile.rename(unfinished, path, overwrite=True)


def write_json(job: Job, path: str, value) -> None:
    """Writes `value` in a fixed order of keys."""
    with renamed(job, path) as file:
        file.write(json.dumps(value, indent=2, sort_keys=True).encode())


def read_json(path: str):
    """Returns what a JSON file holds."""
    with tf.io.gfile.GFile(path) as file:
        return json.loads(file.read())
