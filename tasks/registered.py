"""Finds tasks by name, for commands.

    task = find("ro_mini_ul2", flag="--task", modules=("tasks.romanian",), bindings=())

`modules` register the tasks; `bindings` are applied to gin.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Mapping, Sequence

import seqio

import gin
import tasks
from common.errors import UserError, first_line
from tasks import vocabularies


def load(modules: Sequence[str], bindings: Sequence[str] = ()) -> None:
    """Import the modules, which register tasks, and apply gin bindings.

    Raises:
      UserError: a module cannot be imported, or gin refuses a binding; names the flag.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except (ImportError, ValueError) as error:  # an empty name is a ValueError
            raise UserError("--module", module, f"which cannot be imported: {error}") from error
    for binding in bindings:
        try:
            gin.parse_config(binding, skip_unknown=False)
        except Exception as error:  # gin raises many kinds
            reason = first_line(error)
            raise UserError("--gin_bindings", binding, f"which gin refuses: {reason}") from error


def every_module() -> tuple[str, ...]:
    """Return the names of all modules in `tasks` that may register a task."""
    modules = pkgutil.walk_packages(tasks.__path__, "tasks.")
    return tuple(module.name for module in modules if not module.name.endswith("__main__"))


def find(name: str, flag: str, modules: Sequence[str], bindings: Sequence[str] = ()) -> seqio.Task:
    """Return the registered task `name`, after `load`; `flag` is how the command calls it.

    Raises:
      UserError: as `load`; or no task has that name.
    """
    load(modules, bindings)
    if name in seqio.TaskRegistry.names():
        return seqio.TaskRegistry.get(name)
    if name in seqio.MixtureRegistry.names():
        parts = sorted(task.name for task in seqio.MixtureRegistry.get(name).tasks)
        raise UserError(
            flag, name, "which is a mixture", f"give one of its tasks, {', '.join(parts)}"
        )
    near = difflib.get_close_matches(name, seqio.TaskRegistry.names(), n=3)
    where = ", ".join(modules) if len(modules) <= 5 else "no module of tasks/"
    verb = "does not register" if len(modules) <= 5 else "registers"
    other = f"give another, such as {', '.join(near)}, or " if near else ""
    to_set = f"{other}give the module that registers it by --module"
    raise UserError(flag, name, f"which {where} {verb}", to_set)


def check_features(task: seqio.Task, lengths: Mapping[str, int]) -> None:
    """Raise UserError if --lengths has other features than the task's tokens."""
    if lengths.keys() != (features := vocabularies.token_features(task)).keys():
        raise UserError(
            "--lengths",
            why=f"has {', '.join(lengths)}, but task {task.name} has the features "
            f"{', '.join(features)}",
            to_set="give the length of each",
        )
