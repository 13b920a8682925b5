"""Load packages that libraries import but rarely use when they are used.

seqio imports pyglove for a search over the rates of mixtures, and TensorFlow its API twice more
under `compat`, and interfaces for Keras, mobile devices and NumPy. Nothing here uses these, and
they are 7 % of the time of `import t5x.train`. Importing this module makes the import system load
them at the first access to an attribute. Modules that are imported already stay as they
are, and names that a release of a library no longer has are without effect.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

_API = "tensorflow._api.v2"
_INTERFACES = (
    *("__internal__.distribute.combinations", "__internal__.distribute.multi_process_runner"),
    *("__internal__.feature_column", "experimental.numpy", "feature_column", "lite"),
)
LAZY = frozenset(
    {
        *("numpy.f2py", "pyglove"),
        *(f"{api}.{part}" for api in (_API, f"{_API}.compat.v2") for part in _INTERFACES),
        *(f"{_API}.compat.v1.{part}" for part in ("compat", "distributions", "feature_column")),
        *(f"{_API}.compat.v1.lite", f"{_API}.compat.v2.compat.v2"),
    }
)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a lazy module, None for any other."""
        if fullname not in LAZY:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec and spec.loader:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


def provide() -> None:
    """Make imports of these modules lazy; call it once."""
    sys.meta_path.insert(0, _Finder())


provide()
