"""Look at what gin has parsed; the one module that touches gin's private names.

gin has no public way to do this. gin-config is pinned to 0.5.0.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from gin import config as gin_config
from gin import resource_reader

# In `_CONFIG` the macro STEPS is the parameter `value` of `gin.macro` in the scope "STEPS".
_MACRO = "gin.macro"


def add_search_paths(paths: Sequence[str]) -> None:
    """Add folders in which gin looks for files.

    gin's reader of packaged files is removed: it raises TypeError on folders that are no package.
    """
    readers = gin_config._FILE_READERS
    readers[:] = [r for r in readers if r[0] is not resource_reader.system_path_reader]
    new = [path for path in paths if path not in gin_config._LOCATION_PREFIXES]
    gin_config._LOCATION_PREFIXES.extend(new)


def search_paths() -> list[str]:
    """Return the folders in which gin looks for files, the current one left out."""
    return [path for path in gin_config._LOCATION_PREFIXES if path]


def import_lines() -> dict[str, str]:
    """Return the imports of all parsed files as {bound name: line}, `__gin__` first."""
    imports = {i.bound_name(): i.format() for i in gin_config._IMPORTS}
    return dict(sorted(imports.items(), key=lambda item: ("__gin__" not in item[1], item[1])))


def configurable_names() -> list[str]:
    """Return all registered names as `module.name`, the module without its package."""
    found = [configurable for _, configurable in gin_config._REGISTRY.items()]
    return [f"{c.module.rpartition('.')[2]}.{c.name}" for c in found]


def parameters_of(selector: str) -> list[str]:
    """Return the parameters of a configurable; none for an unknown one."""
    configurable = gin_config._REGISTRY.get_match(selector)
    return list(inspect.signature(configurable.wrapped).parameters) if configurable else []


def bound_parameters() -> dict[Any, set[str]]:
    """Return which parameters of each function or class are bound, in any scope."""
    bound: dict[Any, set[str]] = {}
    for (_, selector), values in gin_config._CONFIG.items():
        bound.setdefault(_function(selector), set()).update(values)
    return bound


def macros_bound() -> set[str]:
    """Return the macros that are set, `%gin.REQUIRED` included."""
    return {scope for scope, selector in gin_config._CONFIG if selector == _MACRO}


def macros_used() -> set[str]:
    """Return the macros that something refers to."""
    references = gin_config.iterate_references(gin_config._CONFIG)
    used = (r for r in references if r.configurable.wrapped is gin_config.macro)
    return {"/".join(reference.scopes) for reference in used}


def drop_required_macro(name: str) -> bool:
    """Remove a macro that is `%gin.REQUIRED`; return whether it was."""
    required = _is_required(gin_config._CONFIG[name, _MACRO]["value"])
    if required:
        del gin_config._CONFIG[name, _MACRO]
    return required


def missing_values() -> list[str]:
    """Return used macros without a value and parameters still `%gin.REQUIRED`, sorted."""
    used, bound, required = macros_used(), macros_bound(), set()
    for (scope, selector), values in gin_config._CONFIG.items():
        for parameter, value in values.items():
            if _is_required(value):
                required.add(scope if selector == _MACRO else f"{selector}.{parameter}")
    return sorted((required - bound) | (required & used) | (used - bound))


def settings_of(wanted: Callable[[Any], bool]) -> dict[str, str]:
    """Return the bindings of each configurable `wanted` accepts, macros and references followed.

      settings_of(lambda function: function.__module__ == "t5x.decoding")
      # {"t5x.decoding.temperature_sample.topk": "40", …}

    Returns:
      By scope, selector and parameter, or macro, the value as gin writes it.
    """
    found: dict[str, str] = {}
    todo = [key for key in gin_config._CONFIG if wanted(_function(key[1]))]
    while todo:
        scope, selector = todo.pop()
        for parameter, value in gin_config._CONFIG[scope, selector].items():
            name = f"{scope}/{selector}.{parameter}" if scope else f"{selector}.{parameter}"
            name = scope if selector == _MACRO else name
            if name not in found:
                found[name] = repr(value)
                for reference in gin_config.iterate_references(value):
                    todo += _bindings_of(reference)
    return found


def _bindings_of(reference: gin_config.ConfigurableReference) -> list[tuple[str, str]]:
    """Return where a reference is bound: in its scopes, and in the scopes around them."""
    scopes, selector = reference.scopes, reference.configurable.selector
    around = ["/".join(scopes[:n]) for n in range(len(scopes) + 1)]
    return [(scope, selector) for scope in around if (scope, selector) in gin_config._CONFIG]


def _function(selector: str) -> Any:
    return gin_config._REGISTRY[selector].wrapped


def _is_required(value: Any) -> bool:
    return isinstance(value, gin_config.ConfigurableReference) and value.scopes == ["gin.REQUIRED"]
