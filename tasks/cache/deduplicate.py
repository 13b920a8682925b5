"""Documents that a split holds several times, found by hash, in little memory.

    note(job, "train", 3)            # the hashes of part 3's documents; all parts first
    compare(job, "train", 7)         # bucket 7 of all hashes: which parts share one
    keep_first(job, Part("train", 0, 3), documents, counts)   # a dataset without repetitions

Of equal texts, letter by letter before any normalization, that of the first part stays, and within
it the first that is read. Hashes have 64 bits: that any two of a hundred million documents are
mistaken for equal has a chance of 1 in 3,700. In memory is one part's hashes, or a 64th of all.
"""

import hashlib
import io

import numpy as np
import seqio
import tensorflow as tf

from tasks.cache.atomic_files import finished, renamed
from tasks.cache.plan import Job, Part, plan_of, task_of

BUCKETS = 64


def hash_of(text: bytes) -> int:
    """Returns the text's 64-bit hash."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def note(job: Job, split: str, index: int) -> None:
    """Writes the sorted hashes of a part's documents, if they are not there."""
    path = f"{job.scratch}/{split}-hashes-{index:05d}"
    if finished(path):
        return
    info = seqio.ShardInfo(index, plan_of(job, split).parts)
    documents = task_of(job).source.get_dataset(split, shuffle=False, seed=0, shard_info=info)
    hashes = {hash_of(x["text"]) for x in documents.as_numpy_iterator()}
    _save(job, path, np.sort(np.array(list(hashes), np.uint64)))


def compare(job: Job, split: str, bucket: int) -> None:
    """Writes a bucket's hashes that later parts repeat, with the first part of each."""
    path = f"{job.scratch}/{split}-shared-{bucket:02d}"
    if finished(path):
        return
    hashes, parts = [], []
    for index in range(plan_of(job, split).parts):
        found = _load(f"{job.scratch}/{split}-hashes-{index:05d}")
        found = found[found % BUCKETS == bucket]
        hashes.append(found)
        parts.append(np.full(found.shape, index, np.uint64))
    hashes, parts = np.concatenate(hashes), np.concatenate(parts)
    order = np.lexsort((parts, hashes))
    hashes, parts = hashes[order], parts[order]
    first = np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]
    shared = first & np.append(hashes[1:] == hashes[:-1], False)[: len(hashes)]
    _save(job, path, np.stack([hashes[shared], parts[shared]]))


def keep_first(
    job: Job, part: Part, documents: tf.data.Dataset, counts: dict[str, int]
) -> tf.data.Dataset:
    """Leaves out documents that an earlier part has, or this one before, and counts them."""
    own = _load(f"{job.scratch}/{part.split}-hashes-{part.index:05d}")
    others: set[int] = set()
    for bucket in range(BUCKETS):
        hashes, parts = _load(f"{job.scratch}/{part.split}-shared-{bucket:02d}")
        others |= set(hashes[(parts < part.index) & np.isin(hashes, own)].tolist())
    seen = others

    def is_first(text) -> np.bool_:
        found = hash_of(text)
        if found in seen:
            counts["skipped_duplicate"] = counts.get("skipped_duplicate", 0) + 1
            return np.False_
        seen.add(found)
        return np.True_

    return documents.filter(
        lambda x: tf.ensure_shape(tf.numpy_function(is_first, [x["text"]], tf.bool), [])
    )


def _save(job: Job, path: str, array: np.ndarray) -> None:
    data = io.BytesIO()
    np.save(data, array)
    with renamed(job, path) as file:
        file.write(data.getvalue())


def _load(path: str) -> np.ndarray:
    with tf.io.gfile.GFile(path, "rb") as file:
        return np.load(io.BytesIO(file.read()))
