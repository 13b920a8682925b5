"""The part of a corpus that a written task holds out.

    shares = held_out(CorpusSource("/data/*.txt"))     # {"validation": 0.01}, or {}

Nothing is held out if the corpus has a split for validation.
"""

import itertools
from collections.abc import Mapping

from common.errors import UserError
from common.waiting import waiting
from tasks.corpus.held_out import BUCKETS, hashes
from tasks.corpus.source import CorpusSource
from tasks.corpus.split import WAITING_S
from tasks.corpus.storage.retry import RetryPolicy

USUAL_SHARE = 0.01
_MOST_BATCHES = 10_000  # of a corpus that hardly has a document
USUAL = {"validation": USUAL_SHARE}


def held_out(source: CorpusSource) -> Mapping[str, float]:
    """Return the shares to hold out, {} if the corpus has a split for validation.

    The share is 1 %, or as much as holds out a document of a small corpus.

    Raises:
      UserError: the corpus cannot be read.
    """
    source.peek("train")  # its errors explain best what is wrong with a corpus
    if has_validation(source, RetryPolicy(limit_s=30.0)):
        return {}
    buckets: set[int] = set()
    with waiting(f"looking for a part of {source.name} to hold out", WAITING_S):
        # A large corpus is left after a few batches.
        for documents in itertools.islice(source.texts("train"), _MOST_BATCHES):
            buckets |= set(hashes(documents, source.column).tolist())
            if buckets and min(buckets) < USUAL_SHARE * BUCKETS <= max(buckets):
                return USUAL
    return {"validation": (min(buckets) + 1) / BUCKETS} if len(buckets) > 1 else USUAL


def has_validation(source: CorpusSource, policy: RetryPolicy) -> bool:
    """Return whether a corpus names a split for validation; False if it does not respond."""
    try:
        return "validation" in source.catalog.names(policy)
    except UserError:
        return False
