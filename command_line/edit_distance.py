"""The package `editdistance` for seqio, which imports it to rank names in a message.

It has no wheel for Python 3.13, where building it takes a C++ compiler. Importing this module makes
`import editdistance` work; an installed one is left alone.
"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def distance(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Return the Levenshtein distance of two texts or sequences."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (x != y))
    return row[-1]


def provide() -> None:
    """Put a module with `eval` in the place of `editdistance` where that is not installed."""
    if "editdistance" not in sys.modules and find_spec("editdistance") is None:
        module = ModuleType("editdistance", __doc__)
        module.eval = distance  # type: ignore[attr-defined]
        sys.modules["editdistance"] = module


provide()
