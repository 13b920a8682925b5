"""A source that records what the trainer asks of it."""

import seqio

from common.source import Source


def _nothing(split, shuffle_files, seed=None):
    raise AssertionError("only its methods are asked")


class Corpus(seqio.FunctionDataSource, Source):
    """A source of a function, with counts and an identity that tests set."""

    def __init__(self, make=None, splits=("train",), counts=None, identity=None, **settings):
        super().__init__(make or _nothing, list(splits), **settings)
        self.peeked, self.pinned, self.checked, self.listings = [], [], [], []
        self.counts, self.saved_identity = counts or {}, identity or {}

    def peek(self, split, n):
        self.peeked.append((split, n))
        return ["abc"] * n

    def identity(self, split):
        return self.saved_identity

    def check_saved(self, split, saved):
        self.checked.append((split, saved))

    def pin_revision(self, revision):
        self.pinned.append(revision)

    def listing(self, split):
        return [f"{split}.txt"]

    def use_listing(self, split, listing):
        self.listings.append(listing)

    def record_counts(self, split=None):
        return dict(self.counts)
