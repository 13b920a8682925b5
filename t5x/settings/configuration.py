"""Asks gin for its configuration.

    bindings = current()
    bindings.macros["TRAIN_STEPS"]                     # 500
    settings_of(bindings, lambda function: function is infer)      # {"infer.mode": "'predict'", …}

A name in it is resolved to the function that it means.
"""

import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

from gin.config_parser import ImportStatement

import gin
from common.gin_reader import Binding, Bindings, Macro, Reference, leaves
from t5x.settings import explain

# The functions of `__main__`, each of another entry point, and the file that configures each.
MAINS = {
    "train": "t5x/configs/runs/pretrain.gin",
    "evaluate": "t5x/configs/runs/eval.gin",
    "infer": "t5x/configs/runs/infer.gin",
    "precompile": "t5x/configs/runs/precompile.gin",
}
Imports = dict[str, ImportStatement]  # {name that is bound: statement}
_DYNAMIC = "dynamic_registration"  # imported where names are Python's own, and not registered


def current() -> Bindings:
    """Return the bindings that gin holds now."""
    return Bindings.read(gin.config_str())


def settings_of(bindings: Bindings, accepts: Callable[[Any], bool]) -> dict[str, str]:
    """Return the settings of the functions that `accepts` accepts, as gin writes them.

        settings_of(current(), lambda function: function.__module__ == "t5x.decoding")
        # {"decoding.temperature_sample.topk": "40", …}

    Included are the settings of all that they refer to.
    """
    return {binding.name: repr(binding.value) for binding in reachable_bindings(bindings, accepts)}


def reachable_bindings(bindings: Bindings, accepts: Callable[[Any], bool]) -> list[Binding]:
    """Return the bindings of the functions that `accepts` accepts, and of all they refer to."""
    result: dict[str, Binding] = {}
    todo = [b for b in bindings if b.parameter and accepts(resolve(b.selector, bindings.imports))]
    while todo:
        binding = todo.pop()
        if binding.name not in result:
            result[binding.name] = binding
            for leaf in leaves(binding.value):
                todo += bindings_of(bindings, leaf)
    return [*result.values()]


def bindings_of(bindings: Bindings, leaf: Any) -> list[Binding]:
    """Return the bindings that a macro or a reference reads, in its scopes and outer ones."""
    if isinstance(leaf, Macro):
        return [binding for binding in bindings if binding.name == leaf and not binding.parameter]
    if not isinstance(leaf, Reference):
        return []
    *scopes, selector = leaf.split("/")
    around = ["/".join(scopes[:n]) for n in range(len(scopes) + 1)]
    imports, function = bindings.imports, resolve(selector, bindings.imports)
    inside = [binding for binding in bindings if binding.parameter and binding.scope in around]
    return [binding for binding in inside if resolve(binding.selector, imports) is function]


def resolve(selector: str, imports: Imports) -> Any:
    """Return the function or class that a name means, None for another command's main function.

    Raise `explain.Mistake` if there is none.
    """
    module, *names = selector.split(".")
    if _DYNAMIC not in imports:
        return _registered(selector)
    if module not in imports and module != "gin":
        raise explain.not_imported(module, imports)
    owner, path = gin if module == "gin" else load(imports[module]), module
    for name in names:
        if not hasattr(owner, name):
            if owner is sys.modules["__main__"] and name in MAINS:
                return None
            raise explain.no_attribute(path, owner, name)
        owner, path = getattr(owner, name), f"{path}.{name}"
    return inspect.unwrap(owner)


def load(statement: ImportStatement) -> Any:
    """Return the module that the name of an import statement is bound to."""
    if statement.module.startswith("__gin__."):
        return None
    try:
        module = importlib.import_module(statement.module)
    except ImportError as error:
        raise explain.no_module(statement, error) from error
    whole = statement.is_from or statement.alias
    return module if whole else sys.modules[statement.module.partition(".")[0]]


def _registered(selector: str) -> Any:
    """Return the function or class that is registered under a name or the end of its name."""
    try:
        return inspect.unwrap(gin.get_configurable(selector))
    except ValueError as error:
        names = [binding.selector for binding in current() if binding.parameter]
        if "." not in selector:
            names = [name.rpartition(".")[2] for name in names]
        raise explain.no_configurable(selector, names) from error
