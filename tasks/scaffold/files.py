"""The files that a command writes for its user: a task, a recipe, a launch script.

    text = fill("launch.sh", recipe="uk_t5x_tiny")    # of templates/launch.sh.template
    check_name("uk", "--name")
    write({"launch/uk_t5x_tiny.sh": text}, ROOT, overwrite=False)

The templates have a suffix of their own, since pip compiles every *.py that it installs.
"""

import ast
import json
import keyword
import pathlib
import re
import string

from common.errors import ROOT, UserError
from common.new_files import write_files
from common.secrets import is_signed, public

_TEMPLATES = pathlib.Path(__file__).with_name("templates")


def fill(template: str, **values: object) -> str:
    """Return the text of a template with its `$names` replaced by values.

    A line that consists of one name becomes the lines of its value, with the same indentation; it
    disappears if the value is empty.
    """
    lines: list[str] = []
    for line in (_TEMPLATES / f"{template}.template").read_text().splitlines():
        if placeholder := re.fullmatch(r"( *)\$(\w+)", line):
            indentation, name = placeholder.groups()
            # `str.splitlines` would also cut a user's text at U+0085 or U+2028.
            value = str(values[name]).removesuffix("\n")
            lines += [indentation + part for part in value.split("\n") if value]
        else:
            lines.append(string.Template(line).substitute(values))
    return "\n".join([*lines, ""])


def check_name(name: str, flag: str) -> None:
    """Raise UserError unless a user's task can be the module tasks/<name>.py."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UserError(
            flag,
            name,
            "but must be of a to z, digits and _, such as uk, and no word of Python's own",
        )
    if (ROOT / "tasks" / name).is_dir():
        raise UserError(flag, name, "which is a folder of tasks/", "give another name")
    module = ROOT / f"tasks/{name}.py"
    statements = ast.parse(module.read_text()).body if module.exists() else []
    if any(isinstance(statement, ast.FunctionDef | ast.ClassDef) for statement in statements):
        raise UserError(
            flag,
            name,
            f"but tasks/{name}.py defines functions, and no file of a user's task does",
            "give another name",
        )


def check_corpus(corpus: str) -> None:
    """Raise UserError for an address with a secret, which the written files would hold."""
    if is_signed(corpus):
        raise UserError(
            public(corpus),
            why="has a signature or key in its query, which the files written here would show",
            to_set="write it into a file of yours and name that as @FILE, or download it",
        )


def write(texts: dict[str, str], root: pathlib.Path, overwrite: bool) -> list[str]:
    """Write all of the files, or none, by path from `root`; return the paths.

    Raises:
      UserError: one exists, and `overwrite` is not set.
      Failure: the disk is full.
    """
    write_files({str(root / path): text.encode() for path, text in texts.items()}, overwrite)
    return list(texts)


def quoted(text: str) -> str:
    """Return a text as a string of Python, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def docstring(text: str) -> str:
    """Return a text as the docstring of a module; it may quote a path or name of the user's."""
    escaped = text.replace("\\", "\\\\").replace('"""', r"\"\"\"")
    return f'"""{escaped}"""'


def python(value: object, indentation: str = "") -> str:
    """Return plain data as Python with double quotes; a long dict has a line for each item."""
    if isinstance(value, dict):
        deeper = indentation + " " * 4
        items = [f"{python(k)}: {python(v, deeper)}" for k, v in value.items()]
        if any("\n" in item for item in items) or sum(map(len, items)) > 60:
            return "".join(["{\n", *(f"{deeper}{item},\n" for item in items), f"{indentation}}}"])
        return f"{{{', '.join(items)}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(python, value))})"
    return quoted(value) if isinstance(value, str) else repr(value)
