"""Parts of a split by seqio's and TFDS's notation: "test[:500]", "train[10%:20%]", "test[-100:]".

    part = slices.parse("validation[10%:20%]")   # SplitPart("validation", "10%", "20%"), or None
    part.bounds(lambda: 1000)                    # (100, 200)

Numbers are places in the order of the files, of documents that are usable.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

_SLICE = re.compile(r"([^\[\]]+)\[(-?\d+%?)?:(-?\d+%?)?\]")


class SplitPart(NamedTuple):
    """A split, and where its part begins and ends; "" is the split's own beginning or end."""

    split: str
    begin: str
    end: str

    @property
    def needs_count(self) -> bool:
        """Whether its bounds depend on the number of documents."""
        return any(mark in text for text in (self.begin, self.end) for mark in "%-")

    def bounds(self, count: Callable[[], int]) -> tuple[int, int | None]:
        """Return the first document's number and the one after the last; None is the end.

        `count` returns the number of documents, and is called only where it is needed.
        """
        total = count() if self.needs_count else 0

        def number(text: str) -> int:
            value = int(text.rstrip("%"))
            value = round(total * value / 100) if text.endswith("%") else value
            return max(value + total, 0) if text.startswith("-") else value

        begin = number(self.begin) if self.begin else 0
        return begin, max(number(self.end), begin) if self.end else None


def parse(split: str) -> SplitPart | None:
    """Return the slice that a name of a split means, None if it is all of a split."""
    match = _SLICE.fullmatch(split)
    return SplitPart(match[1], match[2] or "", match[3] or "") if match else None


def full(split: str) -> str:
    """Return the name of the split that a slice is of, or the name itself."""
    part = parse(split)
    return part.split if part else split


class Splits(tuple[str, ...]):
    """Names of splits, which have their slices too."""

    def __contains__(self, split: object) -> bool:
        return super().__contains__(full(split) if isinstance(split, str) else split)
