"""What a dataset that is being made is for, which preprocessors are not given.

with reading.of(split="train", shards=8, endless=True):
    task_dataset = make()
reading.current()          # within `make`: Reading(split="train", shards=8, endless=True)
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import NamedTuple


class Reading(NamedTuple):
    """A dataset of one of `shards` shares of a split; `endless` if it is trained on."""

    split: str = "train"
    shards: int = 1
    endless: bool = False


_DEFAULT = Reading()
_current: contextvars.ContextVar[Reading] = contextvars.ContextVar("reading", default=_DEFAULT)


def current() -> Reading:
    """Return what the dataset that is being made is for."""
    return _current.get()


@contextlib.contextmanager
def of(split: str, shards: int, endless: bool) -> Iterator[None]:
    """Within the block, let `current` describe datasets of `shards` shares of `split`."""
    token = _current.set(Reading(split, shards, endless))
    try:
        yield
    finally:
        _current.reset(token)
