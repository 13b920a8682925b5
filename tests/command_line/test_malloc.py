"""Freed memory is kept or returned to the system."""

import subprocess
import sys

import pytest

from fakes.paths import ROOT

MIB = 256
FREE = """
import os
import numpy as np
from command_line import malloc

def resident():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") >> 20

"""
# One large block, and many that are too small to have a mapping of their own.
LARGE = "block = [np.ones(MIB << 20, np.uint8)]\n"
SMALL = "block = [np.ones(1 << 16, np.uint8) for _ in range(16 * MIB)]\n"


def kept(setup: str, blocks: str, then: str = "", tunables: str = "") -> bool:
    """Return whether most of the blocks' memory is still the process's after it was freed."""
    program = f"{FREE}MIB = {MIB}\n{setup}\nbefore = resident()\n{blocks}"
    program += f"assert resident() > before + 0.9 * MIB\ndel block\n{then}\n"
    program += "print(resident() > before + 0.5 * MIB)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"GLIBC_TUNABLES": tunables},
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip() == "True"


KEEP = "malloc.keep_freed_memory(os.environ)"


@pytest.mark.parametrize(
    ("setup", "tunables", "expected"),
    [
        ("", "", False),
        (KEEP, "", True),
        (KEEP, "glibc.pthread.rseq=0", True),
        (KEEP, "glibc.malloc.mmap_max=99", False),
    ],
)
def test_freed_memory_is_kept_unless_tunables_say_what_malloc_does(setup, tunables, expected):
    assert kept(setup, LARGE, tunables=tunables) is expected


@pytest.mark.parametrize("blocks", [LARGE, SMALL])
def test_free_memory_is_returned_where_it_was_kept(blocks):
    assert not kept(KEEP, blocks, "malloc.return_freed_memory()")


@pytest.mark.parametrize("function", ["keep_freed_memory({})", "return_freed_memory()"])
def test_another_library_is_left_alone(function):
    program = "import ctypes; from command_line import malloc; ctypes.CDLL = lambda _: object()\n"
    subprocess.run([sys.executable, "-c", f"{program}malloc.{function}"], cwd=ROOT, check=True)
