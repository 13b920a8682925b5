"""What gin sets of some functions, and of all that these settings refer to, as plain texts.

settings_of(lambda function: function.__module__ == "t5x.decoding")
# {"t5x.decoding.temperature_sample.topk": "40", …}: to be kept beside what was made with them
"""

from collections.abc import Callable
from typing import Any

from gin import config as gin_config


def settings_of(wanted: Callable[[Any], bool]) -> dict[str, str]:
    """The bindings of each configurable that `wanted` is true of, macros and references followed.

    Returns:
      By scope, selector and parameter, or macro, the value as gin writes it.
    """
    found: dict[str, str] = {}
    of = lambda selector: gin_config._REGISTRY[selector].wrapped
    todo = [key for key in gin_config._CONFIG if wanted(of(key[1]))]
    while todo:
        scope, selector = todo.pop()
        for parameter, value in gin_config._CONFIG[scope, selector].items():
            name = f"{scope}/{selector}.{parameter}" if scope else f"{selector}.{parameter}"
            name = scope if selector == "gin.macro" else name
            if name in found:
                continue
            found[name] = repr(value)
            for reference in gin_config.iterate_references(value):
                todo += _bound(reference)
    return found


def _bound(reference: gin_config.ConfigurableReference) -> list[tuple[str, str]]:
    """Where what a reference stands for is bound: in its scopes, and in those around them."""
    scopes, selector = reference.scopes, reference.configurable.selector
    around = ["/".join(scopes[:n]) for n in range(len(scopes) + 1)]
    return [(scope, selector) for scope in around if (scope, selector) in gin_config._CONFIG]
