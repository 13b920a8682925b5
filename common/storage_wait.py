"""Wait for storage that may not respond: report the wait, and give up after a time.

    answer(f"MODEL_DIR {folder}", lambda: os.listdir(folder))

The clients of buckets repeat a request that fails with 503 for minutes, and report nothing.
"""

import concurrent.futures
import time
from collections.abc import Callable
from typing import TypeVar

from absl import logging

from common.errors import Failure
from common.threads import in_thread

REPORT_SECONDS = 10.0
GIVE_UP_SECONDS = 300.0
T = TypeVar("T")


def answer(what: str, ask: Callable[[], T]) -> T:
    """Return the result of `ask`, or raise what it raises; raise Failure after `GIVE_UP_SECONDS`.

    `ask` runs in a thread that may be abandoned, so it must not call JAX, which belongs to the main
    thread. Messages call the storage `what`: a setting and its value.
    """
    begun, reports = time.monotonic(), 0
    answered = in_thread(ask, what)
    while True:
        left = begun + GIVE_UP_SECONDS - time.monotonic()
        patience = min(max(0.0, left), REPORT_SECONDS * 2**reports)
        if concurrent.futures.wait([answered], patience).done:
            return answered.result()
        waited = time.monotonic() - begun
        if waited >= GIVE_UP_SECONDS:
            raise Failure(
                what,
                why=f"has not answered for {waited:.0f} s, so the command stops waiting",
                to_set="check that it can be reached from this machine, then start the same "
                "command again",
            )
        logging.warning(
            "%s has not answered for %.0f s; the command stops waiting after %.0f s.",
            *(what, waited, GIVE_UP_SECONDS),
        )
        reports += 1
