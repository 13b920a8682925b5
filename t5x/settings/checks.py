"""Checks the complete configuration.

    check(["TRAIN_STPES = 500"])
    # UserError: --gin.TRAIN_STPES is set but nothing in this configuration uses it (the nearest
    # known name is 'TRAIN_STEPS').

All that is needed must be set, and all that is set must be read.
"""

import contextlib
import functools
import inspect
import operator
import sys
from collections.abc import Sequence
from typing import Any

from absl import logging

import gin
from common.errors import UserError, nearest
from common.gin_reader import REQUIRED, Binding, Bindings, Reference, leaves
from t5x.settings import explain, limits
from t5x.settings.configuration import MAINS, bindings_of, current, reachable_bindings, resolve


def check(flags: Sequence[str]) -> None:
    """Check names and values before gin locks them; `flags` are bindings of the command line.

    Raises:
      UserError: a value is missing or beyond its type or limits, or nothing reads a flag.
    """
    bindings = current()
    _check_that_all_is_read(bindings, {flag.partition("=")[0].strip() for flag in flags})
    _check_that_nothing_is_missing(bindings)
    _check_main(bindings)
    for binding in bindings:
        name, value = bindings.resolved(binding.name, binding.value)
        if binding.parameter:
            function = resolve(binding.selector, bindings.imports)
            limits.check(name, value, function, binding.parameter)


def _check_that_all_is_read(bindings: Bindings, flags: set[str]) -> None:
    """Refuse unread macros and scopes of the command line; warn of likely slips in files."""
    macros, scopes = bindings.macros_used, bindings.scopes
    unread = [(name, "uses it", name, macros) for name in _unused(bindings)]
    for binding in bindings:
        entered = binding.scope.split("/") if binding.parameter and binding.scope else []
        for scope in sorted(set(entered) - scopes):
            unread.append((binding.name, f"enters the scope {scope!r}", scope, scopes))
    for name, reads, part, names in unread:
        hint = nearest(part, names)
        if name in flags:
            why = f"is set but nothing in this configuration {reads}{hint}"
            raise UserError(f"--gin.{name}", why=why)
        if explain.is_near(part, names) and bindings.macros.get(name) != REQUIRED:
            logging.warning("%s is set but nothing %s%s.", name, reads, hint)


def _unused(bindings: Bindings) -> list[str]:
    return sorted(bindings.macros.keys() - bindings.macros_used)


def _check_that_nothing_is_missing(bindings: Bindings) -> None:
    names = bindings.missing()
    if names:
        macros = [name for name in names if "." not in name]
        hints = [f"--gin.{name}=…" for name in names if name != "MODEL"]
        to_set = f"pass {' '.join(hints)}, or set it in a gin file" if hints else ""
        if "MODEL" in names:
            model = "include a model file such as t5x/examples/t5/t5_1_1/base.gin"
            to_set = f"{model}, and {to_set}" if to_set else model
        slips = [name for name in _unused(bindings) if explain.is_near(name, macros)]
        hint = f" ({', '.join(slips)} is set but nothing uses it)" if slips else ""
        verb = "is" if len(names) == 1 else "are"
        raise UserError(", ".join(names), why=f"{verb} not set{hint}", to_set=to_set)
    for name in _unused(bindings):
        if bindings.macros[name] == REQUIRED:  # another entry point needs it, and gin would miss it
            gin.parse_config(f"{name} = None")


def _check_main(bindings: Bindings) -> None:
    """Refuse a configuration that lacks parameters of the function about to be run."""
    for name, file in MAINS.items():
        if function := vars(sys.modules["__main__"]).get(name):
            is_main = functools.partial(operator.is_, function)
            arguments = [
                binding.parameter
                for binding in bindings
                if binding.parameter and is_main(resolve(binding.selector, bindings.imports))
            ]
            if lacking := sorted(_needed(function) - {*arguments}):
                why = f"gets no {', '.join(lacking)}"
                raise UserError(name, why=why, to_set=f"include {file}, or set them")
            for binding in reachable_bindings(bindings, is_main):
                _check_calls(bindings, binding)


def _check_calls(bindings: Bindings, binding: Binding) -> None:
    """Refuse a value that is the result of a call without an argument that it needs."""
    for leaf in leaves(binding.value):
        if isinstance(leaf, Reference) and leaf.is_called:
            function = resolve(leaf.rpartition("/")[2], bindings.imports)
            arguments = {argument.parameter for argument in bindings_of(bindings, leaf)}
            if lacking := sorted(_needed(function) - arguments):
                raise UserError(
                    binding.name,
                    leaf,
                    f"which gets no {', '.join(lacking)}",
                    f"set them, or set {binding.name} to something else",
                )


def _needed(function: Any) -> set[str]:
    """Return the parameters without a default; empty if the signature is unknown."""
    with contextlib.suppress(TypeError, ValueError):
        parameters = inspect.signature(function).parameters.values()
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return {p.name for p in parameters if p.default is p.empty and p.kind not in variadic}
    return set()
