"""Say what a command waits for, where a step of it may take minutes.

with waiting("reading the validation split"):    # after a minute: "reading the …: 60 s so far"
    ...
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from common.errors import say


@contextlib.contextmanager
def waiting(doing: str, seconds: float = 60.0, show: Callable[[str], None] = say) -> Iterator[None]:
    """Show a line, by default on the terminal, whenever the block has taken so many seconds more.

    It ends with the block, whatever the block raises.
    """
    done, start = threading.Event(), time.monotonic()

    def report() -> None:
        while not done.wait(seconds):
            show(f"{doing}: {time.monotonic() - start:.0f} s so far")

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        done.set()
        reporter.join()
