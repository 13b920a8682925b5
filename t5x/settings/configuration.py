"""What gin has been given: bindings, macros and what they refer to, from the text that gin writes.

    found = current()
    found.macros["TRAIN_STEPS"]      # 500
    found.missing()                  # ["MODEL_DIR"]

gin-config has no other public way to ask for its configuration.
"""

import dataclasses
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gin.config_parser import BindingStatement, ImportStatement

import gin
from common import gin_reader
from common.errors import UserError
from common.gin_reader import REQUIRED, Macro, Reference, leaves
from t5x.settings import explain
from t5x.settings.explain import Mistake

# The functions of `__main__`, each of another entry point, and the file that configures each.
MAINS = {
    "train": "t5x/configs/runs/pretrain.gin",
    "evaluate": "t5x/configs/runs/eval.gin",
    "infer": "t5x/configs/runs/infer.gin",
    "precompile": "t5x/configs/runs/precompile.gin",
}
Imports = dict[str, ImportStatement]  # by the name that each binds
_DYNAMIC = "dynamic_registration"  # imported where names are Python's own, and not registered


@dataclasses.dataclass(frozen=True)
class Binding:
    """`scope/selector.parameter = value`; the binding of a macro has no parameter."""

    scope: str
    selector: str
    parameter: str
    value: Any  # with `gin_reader.Reference` and `gin_reader.Macro` in it
    imports: Imports

    @classmethod
    def of(cls, found: BindingStatement, imports: Imports) -> "Binding":
        """Return the binding of a statement of a file with these imports."""
        return cls(found.scope, found.selector, found.arg_name, found.value, imports)

    @property
    def name(self) -> str:
        """What stands before the equals sign."""
        key = f"{self.selector}.{self.parameter}" if self.parameter else self.selector
        return f"{self.scope}/{key}" if self.scope else key

    @property
    def function(self) -> Any:
        """The function or class that has the parameter."""
        return resolve(self.selector, self.imports)


@dataclasses.dataclass(frozen=True)
class Configuration:
    """All bindings, each name once."""

    imports: Imports
    bindings: list[Binding]

    @property
    def macros(self) -> dict[str, Any]:
        """The macros and their values."""
        return {each.name: each.value for each in self.bindings if not each.parameter}

    @property
    def macros_used(self) -> set[str]:
        """The macros that a value refers to."""
        return {str(each) for each in self._leaves() if isinstance(each, Macro)} - {REQUIRED}

    @property
    def scopes(self) -> set[str]:
        """The scopes that a reference enters."""
        found = [each for each in self._leaves() if isinstance(each, Reference)]
        return {scope for each in found for scope in each.split("/")[:-1]}

    def _leaves(self) -> Iterator[Any]:
        return leaves([binding.value for binding in self.bindings])

    def missing(self) -> list[str]:
        """Return used macros without a value and parameters still `%gin.REQUIRED`, sorted."""
        macros = self.macros
        found = {each for each in self.macros_used if macros.get(each, REQUIRED) == REQUIRED}
        found |= {each.name for each in self.bindings if each.parameter and each.value == REQUIRED}
        return sorted(found)

    def values(self) -> Iterator[tuple[str, Any, Binding]]:
        """Yield (what the user sets, its value, the binding) for each parameter.

        Macros are replaced by their values. Raise UserError for one that refers to itself.
        """
        for binding in self.bindings:
            name, value = self._followed(binding.name, binding.value, ())
            if binding.parameter:
                yield name, value, binding

    def _followed(self, name: str, value: Any, seen: tuple[str, ...]) -> tuple[str, Any]:
        """Return the macro that has the value, if any, and the value; inner macros are followed."""
        if isinstance(value, list | tuple):
            return name, type(value)(self._followed(name, each, seen)[1] for each in value)
        if isinstance(value, dict):
            return name, {key: self._followed(name, each, seen)[1] for key, each in value.items()}
        if not isinstance(value, Macro) or value not in self.macros:
            return name, value
        if value in seen:
            circle = " = %".join((*seen, value))
            raise UserError(f"{value} refers to itself ({circle}): set it to a value.")
        return self._followed(str(value), self.macros[value], (*seen, str(value)))

    def settings_of(self, wanted: Callable[[Any], bool]) -> dict[str, str]:
        """Return the bindings of each function or class `wanted` accepts, with what they refer to.

        current().settings_of(lambda function: function.__module__ == "t5x.decoding")
        # {"decoding.temperature_sample.topk": "40", …}, values as gin writes them
        """
        return {each.name: repr(each.value) for each in self.reached(wanted)}

    def reached(self, wanted: Callable[[Any], bool]) -> list[Binding]:
        """Return the bindings of functions that `wanted` accepts, and of all they refer to."""
        found: dict[str, Binding] = {}
        todo = [each for each in self.bindings if each.parameter and wanted(each.function)]
        while todo:
            binding = todo.pop()
            if binding.name not in found:
                found[binding.name] = binding
                for each in leaves(binding.value):
                    todo += self.meant(each)
        return [*found.values()]

    def meant(self, leaf: Any) -> list[Binding]:
        """Return the bindings that a macro or a reference reads, in its scopes and around them."""
        if isinstance(leaf, Macro):
            return [each for each in self.bindings if each.name == leaf and not each.parameter]
        if not isinstance(leaf, Reference):
            return []
        *scopes, selector = leaf.split("/")
        around = ["/".join(scopes[:n]) for n in range(len(scopes) + 1)]
        function = resolve(selector, self.imports)
        inside = [each for each in self.bindings if each.parameter and each.scope in around]
        return [each for each in inside if each.function is function]


def current() -> "Configuration":
    """Return what gin has been given, which it writes as text."""
    found = Configuration({}, [])
    for statement in gin_reader.statements(gin.config_str()):
        if isinstance(statement, ImportStatement):
            found.imports[statement.bound_name()] = statement
        else:
            found.bindings.append(Binding.of(statement, found.imports))
    return found


def resolve(selector: str, imports: Imports) -> Any:
    """Return the function or class that a name means; None for a main function of another command.

    Raise Mistake if there is none.
    """
    module, *names = selector.split(".")
    if _DYNAMIC not in imports:
        return _registered(selector)
    if module not in imports and module != "gin":
        raise Mistake(explain.not_imported(module, imports))
    found, path = gin if module == "gin" else load(imports[module]), module
    for name in names:
        if not hasattr(found, name):
            if found is sys.modules["__main__"] and name in MAINS:
                return None
            raise Mistake(explain.no_attribute(path, found, name))
        found, path = getattr(found, name), f"{path}.{name}"
    return inspect.unwrap(found)


def load(statement: ImportStatement) -> Any:
    """Return the module that the name of an import statement is bound to."""
    if statement.module.startswith("__gin__."):
        return None
    try:
        module = importlib.import_module(statement.module)
    except ImportError as error:
        raise Mistake(explain.no_module(statement, error)) from error
    whole = statement.is_from or statement.alias
    return module if whole else sys.modules[statement.module.partition(".")[0]]


def _registered(selector: str) -> Any:
    """Return the function or class that is registered under a name or the end of its name."""
    try:
        return inspect.unwrap(gin.get_configurable(selector))
    except ValueError as error:
        known = [each.selector for each in current().bindings if each.parameter]
        if "." not in selector:
            known = [name.rpartition(".")[2] for name in known]
        raise Mistake(explain.no_configurable(selector, known)) from error
