"""Splits held out of 'train' by the hashes of the documents.

    shares = {"validation": 0.05, "test": 0.01}
    range_of(shares, "test")                      # (500, 600): which of the BUCKETS of hashes
    dataset = keep(dataset, (500, 600), column)   # the documents that fall into them

A document's text alone decides its split, so the same documents are held out of the corpus in
another order, in other files, or with others added. Of a row, the texts of `Column.split_by`
decide: rows with the same input are all on one side.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from common.errors import UserError
from tasks.corpus.records.documents import Column, Document

BUCKETS = 10_000
_BETWEEN = b"\x1f"  # two texts of a document, as it is hashed
Range = tuple[int, int]  # (first bucket, bucket after the last)


def check(shares: Mapping[str, float], splits: Iterable[str]) -> None:
    """Raise UserError unless shares are positive, leave some of 'train', and it exists.

    Raise it also for a part called as one of the `splits`, which would not be read.
    """
    values = shares.values()
    if shares and not (min(values) > 0 and sum(values) < 1 and "train" in splits):
        raise UserError(
            "held_out",
            dict(shares),
            "but must be shares above 0 that leave some of a split 'train'",
        )
    if names := [name for name in shares if name in splits]:
        raise UserError(
            "held_out",
            dict(shares),
            f"but {names[0]!r} is a split of its own",
            "call the part otherwise, or leave it out here or in `splits`",
        )


def range_of(shares: Mapping[str, float], split: str) -> Range | None:
    """Return the buckets of a split; 'train' gets those that are left. None means all of them."""
    end = 0
    for name, share in shares.items():
        first, end = end, end + max(round(share * BUCKETS), 1)
        if name == split:
            return first, end
    return (end, BUCKETS) if shares and split == "train" else None


def least_share(batches: Iterable[Sequence[Document]], column: Column) -> float:
    """Return the smallest share that holds out a document and not all; 0 if there is none."""
    buckets = {bucket for documents in batches for bucket in hashes(documents, column).tolist()}
    return (min(buckets) + 1) / BUCKETS if len(buckets) > 1 else 0.0


def keys(documents: Sequence[Document], column: Column) -> list[bytes]:
    """Return the text of each document that decides its split."""
    places = [column.features.index(name) for name in column.split_by]
    texts = [_BETWEEN.join(document[place] for place in places) for document in documents]
    return [text.strip() for text in texts] if column.group else texts


def hashes(documents: Sequence[Document], column: Column) -> np.ndarray:
    """Return the bucket of each document, int64 [k]."""
    texts = np.array(keys(documents, column), object)
    return tf.strings.to_hash_bucket_fast(texts, BUCKETS).numpy()


def keep(dataset: tf.data.Dataset, buckets: Range | None, column: Column) -> tf.data.Dataset:
    """Return the documents, texts by feature, of these buckets; all of them for None."""
    if buckets is None:
        return dataset
    first, end = buckets

    def belongs(example):
        text = tf.strings.join([example[name] for name in column.split_by], _BETWEEN)
        text = tf.strings.strip(text) if column.group else text
        bucket = tf.strings.to_hash_bucket_fast(text, BUCKETS)
        return (first <= bucket) & (bucket < end)

    return dataset.filter(belongs)


def in_buckets(
    documents: Sequence[Document], buckets: Range | None, column: Column
) -> list[Document]:
    """Return the documents of these buckets, all of them for None."""
    if buckets is None or not documents:
        return list(documents)
    first, end = buckets
    pairs = zip(documents, hashes(documents, column), strict=True)
    return [document for document, bucket in pairs if first <= bucket < end]
