"""What the C library does with memory that has been freed: keep it or return it to the system.

For glibc, by mallopt(3); with another library nothing is done.
"""

import ctypes
import os
from collections.abc import Mapping

# From malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8
_NEVER = -1


def keep_freed_memory(environment: Mapping[str, str]) -> None:
    """Have this process keep what it frees, unless GLIBC_TUNABLES says what malloc does.

    On a CPU, XLA takes memory for each step, and the first write to new memory is slow
    (benchmarks/README.md, "On a CPU"). One arena a core beside the main thread's, instead of eight,
    keeps less of what threads that read many shards have freed; with fewer, threads that compile
    would wait for each other.
    """
    library = ctypes.CDLL(None)
    if "glibc.malloc" in environment.get("GLIBC_TUNABLES", "") or not hasattr(library, "mallopt"):
        return
    library.mallopt(_TRIM_THRESHOLD, _NEVER)
    library.mallopt(_MMAP_MAX, 0)
    library.mallopt(_ARENA_MAX, (os.cpu_count() or 1) + 1)


def return_freed_memory() -> None:
    """Return free memory to the system now, and large blocks as they are freed."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.mallopt(_MMAP_THRESHOLD, 1 << 20)
        library.malloc_trim(0)
