"""Some documents of a corpus, drawn from all of it, always the same ones.

    rows = documents(source, "train", seed=0)            # in an order that is spread over it
    rows = few(source, "train", 100, feature="targets")  # each class in its share

The beginning of a sorted file is one class, one author or one year.
"""

import collections
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from common.errors import UserError
from common.source import PARTS, RECORDS
from tasks.corpus.overview import is_small
from tasks.corpus.source import CorpusSource

_AT_ONCE = 16  # shards that are read alternately


def documents(
    source: seqio.DataSource,
    split: str,
    seed: int = 0,
    shuffle: bool = True,
    order: str | None = None,
) -> Iterator[dict[str, str]]:
    """Yield the usable documents of a split once, in an order that is spread over the corpus.

    A small corpus is shuffled as a whole. From a larger one files, and parts of large files, are
    drawn at random and read alternately. The same `seed` gives the same documents. Without
    `shuffle`, and for sources that are no `CorpusSource`, they come in their own order. Features
    that are no text are left out. `order`, if it is not PARTS, shuffles a larger corpus too.

    Raises:
      UserError: the corpus cannot be read.
    """
    if not (shuffle and isinstance(source, CorpusSource)):
        datasets = [source.get_dataset(split=split, shuffle=False)]
    elif (order or PARTS) != PARTS or is_small(source, split):
        datasets = [source.get_dataset(split, True, seed, order=RECORDS)]
    else:
        count = min(len(source.list_files(split)), _AT_ONCE)
        shards = [seqio.ShardInfo(index, count) for index in range(count)]
        datasets = [source.get_dataset(split, True, seed, shard, order=PARTS) for shard in shards]
    try:
        for rows in itertools.zip_longest(*(dataset.as_numpy_iterator() for dataset in datasets)):
            yield from (_texts(row) for row in rows if row is not None)
    except tf.errors.OpError as error:
        # TensorFlow keeps only the class and the text of the reader's error.
        reason = (str(error).partition("Error: ")[2] or str(error)).splitlines()[0]
        raise UserError(why=f"the corpus cannot be read: {reason}") from error


def few(
    source: CorpusSource, split: str, most: int, feature: str | None = None
) -> list[dict[str, str]]:
    """Return at most so many documents of a split, drawn evenly from it.

    With `feature`, each value of it has its share of them, rounded up or down. A split whose
    records are not all permuted (see `CorpusSource.order`) is not read to its end for that.

    Raises:
      UserError: the corpus cannot be read.
    """
    order = source.order(split)
    rows = documents(source, split, order=order)
    if feature is None or order == PARTS:
        return list(itertools.islice(rows, most))
    counts: collections.Counter[str] = collections.Counter()
    drawn: dict[str, list[dict[str, str]]] = collections.defaultdict(list)
    for row in rows:
        counts[row[feature]] += 1
        if len(same := drawn[row[feature]]) < most:
            same.append(row)
    total = counts.total()
    # Places at equal distances in the split, as if it were sorted by the values.
    places = np.arange(min(most, total)) * total // max(min(most, total), 1)
    ends = np.cumsum([counts[name] for name in drawn])
    shares = np.bincount(np.searchsorted(ends, places, side="right"), minlength=len(drawn))
    return [row for rows, n in zip(drawn.values(), shares, strict=True) for row in rows[:n]]


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    texts = {name: value for name, value in row.items() if isinstance(value, bytes)}
    return {name: value.decode("utf-8", "replace") for name, value in texts.items()}
