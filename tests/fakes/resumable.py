"""A corpus that implements `ResumableSource` and records what it is asked."""

from t5x.input_pipeline.corpora import METHODS


class Corpus:
    """Methods of a resumable source; `patch_into` adds them to a plain one."""

    def __init__(self, counts=None, identity=None):
        self.peeked, self.pinned, self.listings = [], [], []
        self._counts, self._identity = counts or {}, identity or {}

    def peek(self, split, n):
        self.peeked.append((split, n))
        return ["abc"] * n

    def identity(self, split):
        return self._identity

    def pin_revision(self, revision):
        self.pinned.append(revision)

    def listing(self, split):
        return [f"{split}.txt"]

    def use_listing(self, split, listing):
        self.listings.append(listing)

    def record_counts(self, split, distinct=False):
        return dict(self._counts)

    def patch_into(self, monkeypatch, source):
        """Add these methods to `source` for the time of a test."""
        for name in METHODS:
            monkeypatch.setattr(source, name, getattr(self, name), raising=False)
