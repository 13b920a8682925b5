"""What a dataset that is being made is for, which preprocessors are not given.

with purpose.of(split="train", shards=8, trained=True):
    task_dataset = make()
purpose.current()          # within `make`: Purpose(split="train", shards=8, trained=True)
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any, NamedTuple

from tasks.corpus.records.counts import RecordCounter


class Purpose(NamedTuple):
    """A dataset of one of `shards` shares of a split, and whether it is `trained` on.

    `rate` is the share of the run's examples that come from its task, below 1 in a mixture, None if
    it changes with the step.
    `counter` counts what is made of the texts, if it is not None.
    """

    split: str = "train"
    shards: int = 1
    trained: bool = False
    rate: float | None = 1.0
    counter: RecordCounter | None = None


_DEFAULT = Purpose()
_current: contextvars.ContextVar[Purpose] = contextvars.ContextVar("purpose", default=_DEFAULT)


def current() -> Purpose:
    """Return what the dataset that is being made is for."""
    return _current.get()


@contextlib.contextmanager
def of(**known: Any) -> Iterator[None]:
    """Within the block, let `current` have these fields of `Purpose`."""
    token = _current.set(_current.get()._replace(**known))
    try:
        yield
    finally:
        _current.reset(token)
