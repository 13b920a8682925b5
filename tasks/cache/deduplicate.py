"""Duplicate documents of a split, found by hash, in little memory.

Of equal texts, letter by letter before any normalization, that of the first part is kept, and
within it the first. Hashes have 64 bits: the chance that any two of a hundred million documents
collide is 1 in 3,700. Memory holds one part's hashes, or a 64th of all.
"""

import hashlib
import io
from collections.abc import Mapping

import numpy as np
import seqio
import tensorflow as tf

from tasks.cache.atomic_files import exists, renamed
from tasks.cache.plan import CacheJob, CachePart, plan_of, task_of

BUCKETS = 64


def hash_of(text: bytes) -> int:
    """Return the text's 64-bit hash."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def content(document: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Return what equal documents share, string []: the text, or all columns of a row."""
    if set(document) == {"text"}:
        return document["text"]
    columns = [tf.io.serialize_tensor(value) for _, value in sorted(document.items())]
    return tf.io.serialize_tensor(tf.stack(columns))


def write_hashes(job: CacheJob, split: str, index: int) -> None:
    """Write the sorted hashes of a part's documents, unless the file exists."""
    path = _hashes_path(job, split, index)
    if exists(path):
        return
    info = seqio.ShardInfo(index, plan_of(job, split).parts)
    documents = task_of(job).source.get_dataset(split, shuffle=False, seed=0, shard_info=info)
    hashes = {hash_of(text) for text in documents.map(content).as_numpy_iterator()}
    _save(job, path, np.sort(np.array(list(hashes), np.uint64)))


def write_duplicates(job: CacheJob, split: str, bucket: int) -> None:
    """Write a bucket's hashes that later parts repeat, with the first part of each."""
    path = _duplicates_path(job, split, bucket)
    if exists(path):
        return
    found = [_load(_hashes_path(job, split, i)) for i in range(plan_of(job, split).parts)]
    found = [each[each % BUCKETS == bucket] for each in found]
    hashes = np.concatenate(found)
    parts = np.repeat(np.arange(len(found), dtype=np.uint64), [len(each) for each in found])
    order = np.lexsort((parts, hashes))
    hashes, parts = hashes[order], parts[order]
    repeats = hashes[1:] == hashes[:-1]
    first = np.append(True, ~repeats)[: len(hashes)] & np.append(repeats, False)[: len(hashes)]
    _save(job, path, np.stack([hashes[first], parts[first]]))


def keep_first(
    job: CacheJob, part: CachePart, documents: tf.data.Dataset, counts: dict[str, int]
) -> tf.data.Dataset:
    """Drop and count documents that occur earlier in this part or in an earlier part."""
    own = _load(_hashes_path(job, part.split, part.number))
    seen: set[int] = set()
    for bucket in range(BUCKETS):
        hashes, parts = _load(_duplicates_path(job, part.split, bucket))
        seen |= set(hashes[(parts < part.number) & np.isin(hashes, own)].tolist())

    def is_first(text) -> np.bool_:
        found = hash_of(text)
        if found in seen:
            counts["skipped_duplicate"] = counts.get("skipped_duplicate", 0) + 1
            return np.False_
        seen.add(found)
        return np.True_

    keeps = lambda x: tf.numpy_function(is_first, [content(x)], tf.bool)
    return documents.filter(lambda x: tf.ensure_shape(keeps(x), []))


def _hashes_path(job: CacheJob, split: str, index: int) -> str:
    return f"{job.scratch}/{split}-hashes-{index:05d}"


def _duplicates_path(job: CacheJob, split: str, bucket: int) -> str:
    return f"{job.scratch}/{split}-shared-{bucket:02d}"


def _save(job: CacheJob, path: str, array: np.ndarray) -> None:
    data = io.BytesIO()
    np.save(data, array)
    with renamed(job, path) as file:
        file.write(data.getvalue())


def _load(path: str) -> np.ndarray:
    with tf.io.gfile.GFile(path, "rb") as file:
        return np.load(io.BytesIO(file.read()))
