"""Read gin files and bindings, look up every name in them, and give gin what this run reads.

    reader = Reader(search_paths=["."])
    reader.read_file("gin/ro_t5x_tiny.gin")
    reader.read_flag("TRAIN_STEPS = 500")

gin's own parser yields the statements. Imports, files and names are looked up here, where the place
of a statement is known, and gin gets the statements again as text. So a mistake is one sentence
with its place and the nearest name, and gin never sees the settings of other entry points, nor
those that only upstream T5X has.
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
from common.gin_reader import Reference, leaves
from t5x.settings import explain
from t5x.settings.configuration import Binding, Imports, current, load, resolve
from t5x.settings.explain import Mistake
from t5x.settings.upstream_names import ignores


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

    def read_file(self, name: str, place: str = "") -> None:
        """Give gin a file and what it includes. Raise UserError with the place of a mistake."""
        place = place or f"--gin_file={name}"
        paths = (Path(folder, name) for folder in self._folders)
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            raise UserError(f"{place}: {explain.no_file(name, self._folders)}.")
        if path in self._open:
            raise UserError(f"{place}: {name} includes itself in the end; remove this include.")
        self._open.append(path)
        with path.open() as file:
            self._imports |= self._read(file, place, {})
        self._open.pop()

    def read_flag(self, binding: str) -> None:
        """Give gin a binding of the command line, which may name all that the files import.

        Raise UserError with the flag for a mistake.
        """
        _, _, name = binding.partition("=")[0].strip().rpartition("/")
        module, dot, _ = name.partition(".")
        is_registered = dot and module not in self._imports  # train.x, in no module
        flag = f"--gin.{binding.replace(' = ', '=', 1)}"
        self._read(binding, flag, {} if is_registered else dict(self._imports))

    def _read(self, source: str | IO, flag: str, imports: Imports) -> Imports:
        """Give gin the statements of a text, and return the imports with those of the text."""
        bindings: list[Binding] = []
        for statement in _statements(source, flag):
            file, line, *_ = statement.location
            place = f"{file}:{line}" if file else flag
            try:
                match statement:
                    case IncludeStatement():
                        _apply(imports, bindings, place)
                        bindings = []
                        self.read_file(statement.filename, place)
                    case ImportStatement():
                        load(statement)
                        imports[statement.bound_name()] = statement
                    case BlockDeclaration():
                        self._resolve(statement.selector, imports)
                    case BindingStatement():
                        binding = Binding.of(statement, imports)
                        bindings += [binding] if self._is_read(binding) else []
            except Mistake as error:
                raise UserError(f"{place}: {error}.") from error
        _apply(imports, bindings, flag)
        return imports

    def _is_read(self, binding: Binding) -> bool:
        """Return whether gin gets a binding; raise Mistake if a name in it is unknown."""
        if binding.parameter:
            function = self._resolve(binding.selector, binding.imports)
            if function is None or ignores(function, binding.parameter):
                return False
            known = inspect.signature(function).parameters
            variadic = any(each.kind is each.VAR_KEYWORD for each in known.values())
            if binding.parameter not in known and not variadic:
                raise Mistake(explain.no_parameter(binding.selector, binding.parameter, known))
        for each in leaves(binding.value):
            if isinstance(each, float) and not math.isfinite(each):
                raise Mistake(f"{binding.name} is {binding.value}, which no number can be")
            if isinstance(each, Reference):
                function = self._resolve(each.rpartition("/")[2], binding.imports)
                if function is None:
                    return False
        return True

    def _resolve(self, selector: str, imports: Imports) -> Any:
        """Return a function or class, or None for one whose bindings are skipped."""
        try:
            return resolve(selector, imports)
        except Mistake:
            skipped = self._skip_unknown
            if skipped is True or (not isinstance(skipped, bool) and selector in skipped):
                return None
            raise


def _statements(source: str | IO, flag: str) -> Iterator[Any]:
    try:
        yield from gin_reader.statements(source)
    except SyntaxError as error:
        if error.lineno is None:
            raise UserError(f"{error.filename or flag} cannot be read: {error.msg}.") from error
        place = f"{error.filename}:{error.lineno}" if error.filename else flag
        raise UserError(f"{place}: {explain.syntax(error)}.") from error


def _apply(imports: Imports, bindings: Sequence[Binding], place: str) -> None:
    lines = [each.format() for each in imports.values()]
    lines.sort(key=lambda line: "__gin__" not in line)
    try:
        gin.parse_config(lines + [f"{each.name} = {each.value!r}" for each in bindings])
    except ValueError as error:  # a registered name that means several
        raise UserError(f"{place}: {first_line(error)}") from error
