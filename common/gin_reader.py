"""The bindings of a run's saved gin, read as text: nothing that it names is imported or called.

    bindings = Bindings.read(text)                     # or Bindings.follow("gin/ro_t5x_base.gin")
    bindings.of("T5Config")                            # {"vocab_size": 64000, "emb_dim": 768, …}
    bindings.first("sentencepiece_model_file")         # "data/ro.model"
    bindings.macro("TASK_FEATURE_LENGTHS")             # {"inputs": 512, "targets": 114}

A saved `config.gin` has no includes: they were followed, and macros are bindings. Configurables are
known by their last name, since modules move between versions.
"""

import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from common.errors import UserError
from gin import config_parser


class Reference(str):
    """The name of a configurable that a binding refers to (`@seqio.ByteVocabulary()`)."""

    is_called: bool  # whether () follows it: the value is what the call returns

    def __repr__(self) -> str:
        return f"@{self}{'()' if self.is_called else ''}"


class Macro(str):
    """The name of a macro that a binding refers to (`%TRAIN_STEPS`)."""

    def __repr__(self) -> str:
        return f"%{self}"


REQUIRED = Macro("gin.REQUIRED")
_MOST_MACROS = 100  # in one value; one that refers to itself has no end


class _Delegate(config_parser.ParserDelegate):
    def configurable_reference(self, scoped_configurable_name, evaluate):
        reference = Reference(scoped_configurable_name)
        reference.is_called = evaluate
        return reference

    def macro(self, macro_name):
        return Macro(macro_name)


def statements(source: str | IO) -> Iterator[Any]:
    """Yield the statements of a text or an open file as `gin.config_parser` has them.

    References and macros in values are `Reference` and `Macro`, and `repr` of a value is gin again.
    A macro's binding has no `arg_name`. Raise SyntaxError for any other text.
    """
    try:
        for each in config_parser.ConfigParser(source, _Delegate()):
            is_binding = isinstance(each, config_parser.BindingStatement)
            if is_binding and (each.selector, each.arg_name) == ("macro", "value"):  # the long form
                scope, _, name = each.scope.rpartition("/")
                each = each._replace(scope=scope, selector=name, arg_name="")
            yield each
    except (tokenize.TokenError, ValueError, RecursionError, MemoryError) as error:
        reason = error.args[0] if error.args else "it is nested too deeply"
        where = getattr(source, "name", None), None, None, None
        raise SyntaxError(str(reason), where) from error


def leaves(value: Any) -> Iterator[Any]:
    """Yield what is in a value that is no list, tuple or dict."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each)
    else:
        yield value


class Bindings:
    """The bindings of a configuration; the last of each name wins."""

    def __init__(self):
        self._values: dict[tuple[str, str, str], Any] = {}

    @classmethod
    def read(cls, text: str, include: Callable[[str], str] | None = None) -> "Bindings":
        """Parse gin text, or raise UserError; `include` returns the text of an included file."""
        bindings = cls()
        bindings._parse(text, include)
        return bindings

    @classmethod
    def follow(cls, path: Path, search_paths: list[Path]) -> "Bindings":
        """Read a recipe and its includes, looked for in `search_paths`."""

        def include(name: str) -> str:
            for folder in search_paths:
                if (folder / name).is_file():
                    return (folder / name).read_text()
            raise UserError(f"{path} includes {name}, which is in none of {search_paths}.")

        return cls.read(path.read_text(), include)

    def _parse(self, text, include):
        try:
            for statement in statements(text):
                if isinstance(statement, config_parser.IncludeStatement) and include:
                    self._parse(include(statement.filename), include)
                elif isinstance(statement, config_parser.BindingStatement):
                    scope, selector, argument = statement[:3]
                    self._values[scope, selector, argument] = statement.value
        except SyntaxError as error:
            raise UserError(f"The run's gin cannot be read: {error}") from error

    def _resolve(self, value, budget: Iterator[int] | None = None):
        """Resolve macros; return None for a value that is still `%gin.REQUIRED`.

        `budget` has an item for each macro that may still be looked up on the way.
        """
        budget = budget or iter(range(_MOST_MACROS))
        while isinstance(value, Macro):
            if value == REQUIRED:
                return None
            if ("", str(value), "") not in self._values:
                raise UserError(f"The macro %{value} has no value in the run's gin.")
            if next(budget, None) is None:
                raise UserError(f"The macro %{value} has no end in the run's gin.")
            value = self._values["", str(value), ""]
        if isinstance(value, list | tuple):
            return type(value)(self._resolve(item, budget) for item in value)
        return value

    def of(self, configurable: str) -> dict[str, Any]:
        """Return the unscoped arguments of a class or function, whatever module it is named by.

        Only plain data are returned: written as gin again, it calls nothing.
        """
        found = {
            argument: self._resolve(value)
            for (scope, selector, argument), value in self._values.items()
            if not scope and argument and selector.split(".")[-1] == configurable
        }
        return {k: value for k, value in found.items() if value is not None and _is_literal(value)}

    def texts(self) -> dict[str, str]:
        """Return all values as text, macros unresolved, by `scope/module.Name.argument`."""
        return {
            f"{scope}/{selector}.{argument}".lstrip("/").rstrip("."): repr(value)
            for (scope, selector, argument), value in self._values.items()
        }

    def macro(self, name: str) -> Any:
        """Return the value of a macro, or None if it is not set or not plain data."""
        value = self._resolve(self._values.get(("", name, "")))
        return value if _is_literal(value) else None

    def binds_bytes(self) -> bool:
        """Return whether the vocabulary is that of bytes (ByT5)."""
        vocabulary = self._first("output_vocabulary")
        if isinstance(vocabulary, Reference):
            return vocabulary.split(".")[-1] == "ByteVocabulary"
        return self.names("ByteVocabulary")

    def first(self, argument: str) -> Any:
        """Return the value of an argument of that name anywhere, or None if it is no plain data."""
        value = self._first(argument)
        return value if _is_literal(value) else None

    def _first(self, argument):
        for (_, _, name), value in self._values.items():
            if name == argument:
                return self._resolve(value)
        return None

    def names(self, pattern: str) -> bool:
        """Return whether a configurable whose name matches is bound or referred to."""
        found = [selector for _, selector, _ in self._values]
        found += [each for each in leaves([*self._values.values()]) if isinstance(each, Reference)]
        return any(re.search(pattern, name) for name in found)


def _is_literal(value: Any) -> bool:
    return all(each is None or type(each) in (bool, int, float, str) for each in leaves(value))
