"""Restrict what a gin file imports and binds, where a stranger may have written it.

  trusted_modules.restrict(["my_optimizer"])     # once, by an entry point that reads models
  trusted_modules.check_import("os", None)       # ValueError
  trusted_modules.check_object("utils.os.system", os.system)       # ValueError

A run's `config.gin` names modules, whose import runs code, and functions, which gin calls with
arguments of its choice. Recipes in the repository's own folders are trusted.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_OURS = ("t5x", "tasks")  # this project's modules, by the names that T5X's gin files use
_LIBRARIES = ("seqio", "optax")  # those that gin files of T5X bind
_OF_GIN = ("gin.config.macro", "gin.config.singleton", "gin.config._retrieve_constant")
# What writes, deletes or runs; no gin file binds it.
_INTERNAL = (
    *("t5x.checkpointing", "t5x.checkpoints", "t5x.cli", "t5x.gin_utils"),
    *("t5x.inference.evaluator", "t5x.inference.resumable_jsonl", "t5x.loop"),
    *("t5x.monitoring", "t5x.multihost", "t5x.precompile"),
    *("tasks.cache", "tasks.caches", "tasks.io", "tasks.mirror"),
    *("seqio.beam_utils", "seqio.scripts", "seqio.test_utils"),
)
_PUBLIC = (
    "t5x.checkpointing.config",
    *("t5x.gin_utils.summarize_gin_config", "t5x.gin_utils.sum_fn", "t5x.gin_utils.bool_fn"),
    "t5x.gin_utils.string_split_fn",
)


class _Policy:
    """Of this process: the modules allowed, None for all."""

    allowed: set[str] | None = None


def restrict(more: Iterable[str]) -> None:
    """Allow from now on only this project's and T5X's modules, and `more`."""
    _Policy.allowed = {"__main__", *_OURS, *_LIBRARIES, *more}


def check_import(module: str, file: str | None) -> None:
    """Allow an import, a module's full name, that `file` asks for; None is the command line.

    Raise ValueError if it is of neither this project nor T5X, and is not allowed either.
    """
    if _Policy.allowed is None or _is_in(module, _Policy.allowed):
        return
    if file is not None and _is_own_recipe(Path(file)):
        _Policy.allowed.add(module.partition(".")[0])
        return
    raise ValueError(
        f"The module {module!r} is neither of this project nor of T5X, and importing it runs its "
        f"code; if you trust it, add --trusted_modules={module}"
    )


def check_object(selector: str, value: Any) -> None:
    """Allow a class or function that a gin file binds or refers to.

    Raise ValueError if no allowed module defines it, or it deletes or writes files.
    """
    if _Policy.allowed is None:
        return
    module = getattr(value, "__module__", None) or type(value).__module__
    name = f"{module}.{getattr(value, '__qualname__', '')}"
    if name in _OF_GIN:
        return
    if not _is_in(module, _Policy.allowed):
        raise ValueError(
            f"{selector} is of the module {module!r}, which is neither of this project nor of T5X; "
            f"if you trust this file, add --trusted_modules={module}"
        )
    named = {*_PUBLIC, *_Policy.allowed} - {*_OURS}
    if _is_in(name, _INTERNAL) and not _is_in(name, named):
        raise ValueError(
            f"{selector} is no setting of a model; if you trust this file, add "
            f"--trusted_modules={module}"
        )


def _is_in(name: str, modules: Iterable[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _is_own_recipe(file: Path) -> bool:
    file = file.resolve()
    return any(file.is_relative_to(ROOT / folder) for folder in ("gin", *_OURS))
