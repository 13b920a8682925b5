"""Reads gin files and flags, looks up every name in them, and gives gin what this run reads.

    reader = Reader(search_paths=["."])
    reader.read_file("gin/ro_t5x_tiny.gin")
    reader.read_flag("TRAIN_STEPS = 500")

gin's own parser yields the statements. Names are looked up here, where the place of a statement is
known, and gin then gets the statements as text. So a mistake is one sentence with its place and the
nearest name, and gin never sees the settings of other entry points or of upstream T5X alone.
"""

import inspect
import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from gin.config_parser import BindingStatement, BlockDeclaration, ImportStatement, IncludeStatement

import gin
from common import gin_reader
from common.errors import ROOT, UserError, first_line
from common.gin_reader import Binding, Reference, leaves
from t5x.settings import explain
from t5x.settings.configuration import Imports, current, load, resolve
from t5x.settings.explain import Mistake
from t5x.settings.upstream_names import ignores

_LEAST_FLOAT32 = 2.0**-126


class Reader:
    """Reads gin files and then bindings of the command line; later ones win.

    Files are looked for in the current folder, the `search_paths` and the repository. Bindings of
    configurables that do not exist are skipped if `skip_unknown` is True or has their names.
    """

    def __init__(
        self, search_paths: Sequence[str] = (), skip_unknown: bool | Collection[str] = False
    ):
        self._folders = ["", *search_paths, str(ROOT)]
        self._skip_unknown = skip_unknown
        self._imports = current().imports
        self._open: list[Path] = []  # each file is included by the one before
        self.files: list[Path] = []  # all that were read, in order

    def read_file(self, name: str, place: str = "") -> None:
        """Give gin a file and its includes. Raise UserError with the place of a mistake."""
        place = place or f"--gin_file={name}"
        paths = (Path(folder, name) for folder in self._folders)
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            raise explain.no_file(name, self._folders).at(place)
        if path in self._open:
            why = "includes itself in the end"
            raise UserError(name, why=why, to_set="remove this include").at(place)
        self._open.append(path)
        self.files.append(path)
        with path.open() as file:
            self._imports |= self._read(file, place, {})
        self._open.pop()

    def read_flag(self, binding: str) -> None:
        """Give gin a binding of the command line, which may use all names that the files import.

        Raise UserError, with the flag as its place, for a mistake.
        """
        _, _, name = binding.partition("=")[0].strip().rpartition("/")
        module, dot, _ = name.partition(".")
        is_registered = dot and module not in self._imports  # train.x, in no module
        flag = f"--gin.{binding.replace(' = ', '=', 1)}"
        self._read(binding, flag, {} if is_registered else dict(self._imports))

    def _read(self, source: str | IO, flag: str, imports: Imports) -> Imports:
        """Give gin the statements of a text, and return `imports` with those that it adds."""
        bindings: list[Binding] = []
        for statement in _statements(source, flag):
            file, line, *_ = statement.location
            place = f"{file}:{line}" if file else flag
            if isinstance(statement, IncludeStatement):
                _apply(imports, bindings, place)
                bindings = []
                self.read_file(statement.filename, place)
                continue
            try:
                match statement:
                    case ImportStatement():
                        load(statement)
                        imports[statement.bound_name()] = statement
                    case BlockDeclaration():
                        self._resolve(statement.selector, imports)
                    case BindingStatement():
                        binding = Binding.of(statement)
                        bindings += [binding] if self._is_read(binding, imports) else []
            except Mistake as error:
                error.at(place)
                raise
        _apply(imports, bindings, flag)
        return imports

    def _is_read(self, binding: Binding, imports: Imports) -> bool:
        """Return whether gin gets a binding. Raise Mistake for an unknown name, or no number."""
        if not binding.name:
            raise Mistake("gin.macro.value", binding.value, "but names no macro", "write NAME = …")
        if binding.parameter:
            function = self._resolve(binding.selector, imports)
            if function is None or ignores(function, binding.parameter):
                return False
            parameters = inspect.signature(function).parameters
            variadic = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
            if binding.parameter not in parameters and not variadic:
                raise explain.no_parameter(binding.selector, binding.parameter, parameters)
        for leaf in leaves(binding.value):
            if isinstance(leaf, float) and not math.isfinite(leaf):
                raise Mistake(binding.name, binding.value, "which no number can be")
            if isinstance(leaf, float) and 0 < abs(leaf) < _LEAST_FLOAT32:
                why = f"below {_LEAST_FLOAT32}, the least number that float32 holds"
                raise Mistake(binding.name, binding.value, why, "set it to 0 or to more")
            if isinstance(leaf, Reference):
                function = self._resolve(leaf.rpartition("/")[2], imports)
                if function is None:
                    return False
        return True

    def _resolve(self, selector: str, imports: Imports) -> Any:
        """Return a function or class, or None if its bindings are skipped."""
        try:
            return resolve(selector, imports)
        except Mistake:
            skip = self._skip_unknown
            if skip is True or (not isinstance(skip, bool) and selector in skip):
                return None
            raise


def _statements(source: str | IO, flag: str) -> Iterator[Any]:
    try:
        yield from gin_reader.statements(source)
    except SyntaxError as error:
        if error.lineno is None:
            why = f"cannot be read: {error.msg}"
            raise UserError(error.filename or flag, why=why) from error
        place = f"{error.filename}:{error.lineno}" if error.filename else flag
        raise explain.syntax(error).at(place) from error


def _apply(imports: Imports, bindings: Sequence[Binding], place: str) -> None:
    lines = [statement.format() for statement in imports.values()]
    lines.sort(key=lambda line: "__gin__" not in line)
    try:
        gin.parse_config(lines + [f"{b.name} = {b.value!r}" for b in bindings])
    except ValueError as error:  # a registered name that means several
        raise UserError(why=first_line(error)).at(place) from error
