"""Load pyglove when it is used.

seqio imports it for a search over the rates of mixtures, which nothing here does, and it takes 6 %
of the time of `import t5x.train` (`python -X importtime`). Importing this module makes the import
system load it at the first access to an attribute. If it was imported before, it stays as it is.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType


class _Finder(importlib.abc.MetaPathFinder):
    # A lazy module in sys.modules would be loaded by the first import, which reads its __spec__.
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a lazy module, None for any other."""
        if fullname != "pyglove":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec and spec.loader:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
