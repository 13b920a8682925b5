"""The files that a command writes for its user: a task, a recipe, a launch script.

check_name("uk", "--name")
write({"tasks/uk.py": "…", "launch/uk.sh": SCRIPT.format(recipe="uk")}, ROOT, overwrite=False)
"""

import ast
import json
import keyword
import pathlib
import re

from common.errors import ROOT, UserError

SCRIPT = """\
#!/usr/bin/env bash
set -euo pipefail
exec bash "$(dirname "${{BASH_SOURCE[0]}}")/train.sh" {recipe} "$@"
"""


def check_name(name: str, flag: str) -> None:
    """Raise UserError unless `name` can be a module of tasks/."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UserError(
            f"{flag} is {name!r}, but must be of a to z, digits and _, such as uk, and no word of "
            "Python's own"
        )
    if (ROOT / "tasks" / name).is_dir():
        raise UserError(f"{flag} is {name!r}, which is a folder of tasks/: give another name")
    module = ROOT / f"tasks/{name}.py"
    parts = ast.parse(module.read_text()).body if module.exists() else []
    if any(isinstance(part, ast.FunctionDef | ast.ClassDef) for part in parts):
        raise UserError(
            f"{flag} is {name!r}, but tasks/{name}.py defines functions, and no file of a user's "
            "task does: give another name"
        )


def write(made: dict[str, str], root: pathlib.Path, overwrite: bool) -> list[str]:
    """Write files, by path from `root`, all or none, and return their paths.

    Raises:
      UserError: one exists, and `overwrite` is not set.
    """
    kept = [path for path in made if (root / path).exists()]
    if kept and not overwrite:
        raise UserError(
            f"{' and '.join(kept)} exist: train with them, remove them, or give --overwrite"
        )
    for path, content in made.items():
        (root / path).write_text(content)
    return list(made)


def quoted(text: str) -> str:
    """Return a text as a string of Python, in double quotes."""
    return json.dumps(text, ensure_ascii=False)
