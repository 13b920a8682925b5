"""Keep Keras and TensorFlow Lite out of processes that import TensorFlow.

`import tensorflow` imports Keras, with Matplotlib, to register its optimizers, and an older Keras
of its own for classes that tf.feature_column extends; tensorflow_text and TensorBoard import Keras
for a layer and a callback. Together that is a quarter of the time of `import t5x.train` (`python -X
importtime`). Lite's converter and the handling of failures of TensorFlow's own training, which
imports requests, are 7 %. Nothing here uses any of it. Importing this module makes `import keras`
an ImportError, which TensorFlow takes as "not installed", and gives the other modules empty
classes. It does nothing if Keras was imported before.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

# Packages and modules whose classes are only imported, extended or named, never made.
_UNUSED = (
    "tensorflow.lite",
    "tensorflow.python.distribute.failure_handling",
    "tensorflow.python.keras",
    "tensorflow_text.python.keras",
    "tensorboard.plugins.hparams._keras",
)


class _EmptyClass(type):
    # `from package import module` takes an attribute of the package before it looks for a module.
    def __getattr__(cls, name: str) -> Any:
        return _empty(cls.__qualname__, name)


class _EmptyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return _empty(self.__name__, name)


def _empty(owner: str, name: str) -> _EmptyClass:
    if name.startswith("__"):  # what Python asks every module and class for
        raise AttributeError(f"{owner} has no attribute {name}")
    return _EmptyClass(name, (), {})


class _UnusedFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of an empty module for an unused one, None for any other."""
        if not f"{fullname}.".startswith(tuple(f"{name}." for name in _UNUSED)):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return an empty module."""
        return _EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave it empty."""


def provide() -> None:
    """Make `import keras` raise ImportError, and other unused modules empty."""
    if sys.modules.setdefault("keras", None):  # type: ignore[arg-type]  # as the import system means it
        return
    sys.meta_path.insert(0, _UnusedFinder())


provide()
