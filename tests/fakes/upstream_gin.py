"""Upstream's gin files, written from the statements in tests/golden/upstream_gin.json."""

import json
import sys
import types

from fakes.paths import GOLDEN

STATEMENTS = json.loads((GOLDEN / "upstream_gin.json").read_text())
MAINS = ("train", "evaluate", "infer", "precompile")


def line(statement: dict) -> str:
    """Return a statement as gin writes it."""
    if "include" in statement:
        return f"include '{statement['include']}'"
    if "import" in statement:
        parent, _, name = statement["import"].rpartition(".")
        text = f"from {parent} import {name}" if statement["from"] else f"import {parent}.{name}"
        text = text if parent else f"import {name}"
        return f"{text} as {statement['as']}" if statement["as"] else text
    scope, selector, argument, value = statement["bind"]
    name = f"{scope}/{selector}" if scope else selector
    return f"{name}.{argument} = {value}" if argument else f"{name} = {value}"


def write(folder) -> None:
    """Write all files under `folder`."""
    for file, statements in STATEMENTS.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line(statement)}\n" for statement in statements))


def main_of(file: str) -> str | None:
    """Return the function of `__main__` that a file or its includes set, None for a model file."""
    for statement in STATEMENTS[file]:
        if "include" in statement and (main := main_of(statement["include"])):
            return main
        selector = statement.get("bind", ("", ""))[1]
        if "_script." in selector and selector.rpartition(".")[2] in MAINS:
            return selector.rpartition(".")[2]
    return None


def tasks_of_t5() -> dict[str, types.ModuleType]:
    """Return empty modules in the place of t5's, which register tasks when they are imported."""
    modules = {name: types.ModuleType(name) for name in ("t5", "t5.data", "t5.data.mixtures")}
    modules["t5"].data = modules["t5.data"]
    modules["t5.data"].mixtures = modules["t5.data.mixtures"]
    for module in modules.values():
        module.__path__ = []
        assert module.__name__ not in sys.modules
    return modules
