"""Import parts of seqio's dependencies when they are used.

seqio imports pyglove for a search over the rates of mixtures, which nothing here does, and
tensorflow_text, with twenty libraries of operations, where it needs SentencePiece's. They take
6 % and 7 % of the time of `import t5x.train` (`python -X importtime`). Importing this module makes
the import system run a module of them at the first access to an attribute that it lacks. What was
imported before stays as it is.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_TEXT, _TEXT_OPS = "tensorflow_text", "tensorflow_text.python.ops"
# The attributes of `tensorflow_text` that modules of `_TEXT_OPS` give without all others.
_ALONE = {
    "FastSentencepieceTokenizer": "fast_sentencepiece_tokenizer",
    "SentencepieceTokenizer": "sentencepiece_tokenizer",
}
_running = threading.RLock()


class _Text(ModuleType):
    """A package of tensorflow_text whose `__init__` has not run yet."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python asks every module for
            raise AttributeError(f"{self.__name__} has no attribute {name}")
        if self.__name__ == _TEXT and name in _ALONE:
            return getattr(importlib.import_module(f"{_TEXT_OPS}.{_ALONE[name]}"), name)
        with _running:
            # The operations first: `tensorflow_text` imports all their names by a `*`.
            for package in map(importlib.import_module, (_TEXT_OPS, _TEXT)):
                if isinstance(package, _Text):
                    loader: Any = package.__loader__
                    package.__class__ = ModuleType  # type: ignore[assignment]
                    loader.loader.exec_module(package)
        return getattr(self, name)


class _TextLoader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader):
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return a package that runs later."""
        return _Text(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave it as it is."""


class _Finder(importlib.abc.MetaPathFinder):
    # A lazy module in sys.modules would be loaded by the first import, which reads its __spec__.
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a lazy module, None for any other."""
        if fullname not in ("pyglove", _TEXT, _TEXT_OPS):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec and spec.loader:
            lazy = importlib.util.LazyLoader if fullname == "pyglove" else _TextLoader
            spec.loader = lazy(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
