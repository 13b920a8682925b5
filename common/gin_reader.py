"""The bindings of gin text, read without importing or calling anything that it names.

    bindings = Bindings.read(text)                     # or Bindings.follow("gin/ro_t5x_base.gin")
    bindings.of("T5Config")                            # {"vocab_size": 64000, "emb_dim": 768, …}
    bindings.first("sentencepiece_model_file")         # "data/ro.model"
    bindings.macro("TASK_FEATURE_LENGTHS")             # {"inputs": 512, "targets": 114}
    bindings.missing()                                 # ["MODEL_DIR"]

The text is a recipe, the `config.gin` of a run, or what `gin.config_str()` writes of the live
configuration (gin-config has no other public way to ask for it). The last two have no includes.
`of` knows configurables by their last name, since modules move between versions.
"""

import dataclasses
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from common.arguments import local
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
_PLAIN = (bool, int, float, str)
_LONG_FORMS = ("macro.value", "gin.macro.value")  # NAME/macro.value = 5 is NAME = 5


class _Delegate(config_parser.ParserDelegate):
    def configurable_reference(self, scoped_configurable_name, evaluate):
        reference = Reference(scoped_configurable_name)
        reference.is_called = evaluate
        return reference

    def macro(self, macro_name):
        return Macro(macro_name)


def statements(source: str | IO) -> Iterator[Any]:
    """Yield the statements of a text or an open file as `gin.config_parser` has them.

    Values hold references and macros as `Reference` and `Macro`; their `repr` is gin again. The
    binding of a macro has no `arg_name`. Raise SyntaxError for text that is not gin.
    """
    try:
        for statement in config_parser.ConfigParser(source, _Delegate()):
            is_binding = isinstance(statement, config_parser.BindingStatement)
            if is_binding and f"{statement.selector}.{statement.arg_name}" in _LONG_FORMS:
                scope, _, name = statement.scope.rpartition("/")
                statement = statement._replace(scope=scope, selector=name, arg_name="")
            yield statement
    except (tokenize.TokenError, ValueError, RecursionError, MemoryError) as error:
        reason = error.args[0] if error.args else "it is nested too deeply"
        where = getattr(source, "name", None), None, None, None
        raise SyntaxError(str(reason), where) from error


def leaves(value: Any) -> Iterator[Any]:
    """Yield the parts of a value that are not lists, tuples or dicts themselves."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def _local(value: Any) -> Any:
    """Return a value with its texts as `common.arguments.local` returns paths."""
    if isinstance(value, list | tuple):
        return type(value)(map(_local, value))
    if isinstance(value, dict):
        return {key: _local(item) for key, item in value.items()}
    return local(value) if type(value) is str else value


@dataclasses.dataclass(frozen=True)
class Binding:
    """`scope/selector.parameter = value`; the binding of a macro has no parameter."""

    scope: str
    selector: str
    parameter: str
    value: Any  # may hold `Reference` and `Macro`

    @classmethod
    def of(cls, statement: config_parser.BindingStatement) -> "Binding":
        """Return the binding that a statement makes, its paths `local`."""
        value = _local(statement.value)
        return cls(statement.scope, statement.selector, statement.arg_name, value)

    @property
    def name(self) -> str:
        """The text before the equals sign."""
        key = f"{self.selector}.{self.parameter}" if self.parameter else self.selector
        return f"{self.scope}/{key}" if self.scope else key


class Bindings:
    """The bindings of a configuration, the last of each name, and its imports.

    `imports` has the import statements by the name that each binds.
    """

    def __init__(self):
        self.imports: dict[str, config_parser.ImportStatement] = {}
        self._bindings: dict[str, Binding] = {}

    def __iter__(self) -> Iterator[Binding]:
        return iter(self._bindings.values())

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
            raise UserError(str(path), why=f"includes {name}, which is in none of {search_paths}")

        return cls.read(path.read_text(), include)

    def _parse(self, text: str, include: Callable[[str], str] | None) -> None:
        try:
            for statement in statements(text):
                if isinstance(statement, config_parser.IncludeStatement) and include:
                    self._parse(include(statement.filename), include)
                elif isinstance(statement, config_parser.ImportStatement):
                    self.imports[statement.bound_name()] = statement
                elif isinstance(statement, config_parser.BindingStatement):
                    binding = Binding.of(statement)
                    self._bindings[binding.name] = binding
        except SyntaxError as error:
            raise UserError("The run's gin", why=f"cannot be read: {error}") from error

    @property
    def macros(self) -> dict[str, Any]:
        """The macros and their values."""
        return {binding.name: binding.value for binding in self if not binding.parameter}

    @property
    def macros_used(self) -> set[str]:
        """The macros that a value refers to."""
        return {str(leaf) for leaf in self._leaves() if isinstance(leaf, Macro)} - {REQUIRED}

    @property
    def scopes(self) -> set[str]:
        """The scopes that a reference enters."""
        return {scope for reference in self._references for scope in reference.split("/")[:-1]}

    @property
    def _references(self) -> list[Reference]:
        return [leaf for leaf in self._leaves() if isinstance(leaf, Reference)]

    def _leaves(self) -> Iterator[Any]:
        return leaves([binding.value for binding in self])

    def missing(self) -> list[str]:
        """Return used macros without a value and parameters still `%gin.REQUIRED`, sorted."""
        macros = self.macros
        names = {name for name in self.macros_used if macros.get(name, REQUIRED) == REQUIRED}
        names |= {b.name for b in self if b.parameter and b.value == REQUIRED}
        return sorted(names)

    def resolved(self, name: str, value: Any, macros: tuple[str, ...] = ()) -> tuple[str, Any]:
        """Return a value with its macros replaced, and the macro that has it instead of `name`.

            bindings.resolved("T5Config.vocab_size", Macro("SIZE"))     # ("SIZE", 64000)

        A macro without a value is left. Raise UserError for one that refers to itself; `macros`
        were followed to get here.
        """
        if isinstance(value, list | tuple):
            return name, type(value)(self.resolved(name, item, macros)[1] for item in value)
        if isinstance(value, dict):
            return name, {k: self.resolved(name, item, macros)[1] for k, item in value.items()}
        binding = self._bindings.get(value) if isinstance(value, Macro) else None
        if binding is None or binding.parameter:
            return name, value
        macro = str(value)
        if macro in macros:
            circle = " = %".join((*macros, macro))
            raise UserError(macro, why=f"refers to itself ({circle})", to_set="set it to a value")
        return self.resolved(macro, binding.value, (*macros, macro))

    def _plain(self, value: Any) -> Any:
        """Return a value of plain data, or None for a reference and `%gin.REQUIRED`.

        Only plain data are returned: written as gin again, they call nothing. Raise UserError for a
        macro without a value.
        """
        _, value = self.resolved("", value)
        for leaf in leaves(value):
            if isinstance(leaf, Macro) and leaf != REQUIRED:
                raise UserError(f"The macro %{leaf}", why="has no value in the run's gin")
        is_plain = all(leaf is None or type(leaf) in _PLAIN for leaf in leaves(value))
        return value if is_plain else None

    def of(self, configurable: str) -> dict[str, Any]:
        """Return the unscoped arguments of a class or function, whatever module it is named by.

        Only plain data are returned.
        """
        values = {
            binding.parameter: self._plain(binding.value)
            for binding in self
            if not binding.scope
            and binding.parameter
            and binding.selector.split(".")[-1] == configurable
        }
        return {name: value for name, value in values.items() if value is not None}

    def texts(self) -> dict[str, str]:
        """Return all values as gin text, macros unresolved, by `scope/module.Name.argument`."""
        return {binding.name: repr(binding.value) for binding in self}

    def macro(self, name: str) -> Any:
        """Return the value of a macro, or None if it is not set or not plain data."""
        return self._plain(self.macros.get(name))

    def first(self, argument: str) -> Any:
        """Return the first value of an argument of any function, or None if it is not plain."""
        return self._plain(self._first(argument))

    def _first(self, argument: str) -> Any:
        return next((binding.value for binding in self if binding.parameter == argument), None)

    def binds_bytes(self) -> bool:
        """Return whether the vocabulary consists of bytes (ByT5)."""
        _, vocabulary = self.resolved("", self._first("output_vocabulary"))
        if isinstance(vocabulary, Reference):
            return vocabulary.split(".")[-1] == "ByteVocabulary"
        return self.names("ByteVocabulary")

    def refers(self, name: str) -> bool:
        """Return whether a value refers to a configurable whose last name is this."""
        return name in [re.split("[./]", reference)[-1] for reference in self._references]

    def names(self, pattern: str) -> bool:
        """Return whether a configurable whose name matches is bound or referred to."""
        configurables = [*(binding.selector for binding in self), *self._references]
        return any(re.search(pattern, name) for name in configurables)
