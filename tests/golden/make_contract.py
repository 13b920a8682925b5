"""Write contract.json: the names, commands and files that users bind, run and keep.

    python tests/golden/make_contract.py

`contract.json` has groups of subjects, and of each subject its parts:

| group | subject | parts |
|---|---|---|
| `gin` | a function or class that gin files bind, by the module they import it from | parameters |
| `gin files` | a file that recipes include | the macros that it sets |
| `python` | a name that the documentation's Python examples use | parameters |
| `tasks` | the registry of SeqIO | names that MIXTURE_OR_TASK_NAME may have |
| `commands` | what stands after `python -m`; the commands of launch/tpu.py | flags, positionals |
| `scripts` | a folder of shell scripts; tasks/, for its modules; pyproject.toml | names |
| `files` | MODEL_DIR, a cache; a file in them | paths; its keys or arrays |
| `environment` | scripts, launch/env.example | variables that they read |

In `gin` are the public names that upstream T5X has too, those that our gin files, README and docs/
write, and all that is registered. Parameters have their defaults if those are plain. All else is
free: where a name is defined, what else a module has, what commands call. Files that the contract
lacks are those of a user to the tests; this script takes them in.
"""

import argparse
import ast
import contextlib
import enum
import importlib
import inspect
import io
import json
import os
import pathlib
import pkgutil
import re
import sys
import tempfile
import tomllib
import warnings
from typing import Any
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "contract.json"
if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]
    importlib.import_module("convert")  # before TensorFlow and PyTorch are imported

import numpy as np  # noqa: E402
import seqio  # noqa: E402
from absl import flags  # noqa: E402

import gin  # noqa: E402
from fakes.pages import PAGES, blocks  # noqa: E402
from fakes.paths import PACKAGES, ROOT, is_shipped  # noqa: E402

Group = dict[str, list[str]]
_is_of_ours = (lambda path: True) if __name__ == "__main__" else is_shipped
_files = lambda folder, pattern: sorted(filter(_is_of_ours, (ROOT / folder).rglob(pattern)))
GIN_FILES = [*_files("gin", "*.gin"), *_files("t5x", "*.gin")]
GIN_TEXT = "\n".join(path.read_text() for path in GIN_FILES)
SCRIPTS = [*_files("convert", "*.sh"), *_files("launch", "*.sh")]
_REGISTERED = r'^@gin\.configurable(?:\(module="([\w.]+)"\))?\n(?:@.*\n)*(?:def|class) (\w+)'
# What differs between runs, in names of files.
_PATTERNS = (
    (r"events\.out\.tfevents\S*", "events.out.tfevents.*"),
    (r"/d/[0-9a-f]{32}$", "/d/*"),
    (r"(?<=checkpoint_)\d+|(?<=process_)\d+|\d+(?=-of-)|(?<=-of-)\d+", "N"),
)


def parameters(value: Any) -> list[str]:
    """Return the parameters of a function or class, each with its default if that is plain."""
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return list(value.__members__)
    if not callable(value):
        return []
    texts = []
    for name, parameter in inspect.signature(value).parameters.items():
        default = parameter.default
        plain = default is None or isinstance(default, int | float | str | bool)
        shown = repr(default) if plain and not isinstance(default, enum.Enum) else "…"
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
        name = stars.get(parameter.kind, "") + name
        texts.append(name if default is parameter.empty else f"{name}={shown}")
    return texts


def gin_names(recorded: Group) -> Group:
    """Return the parameters of all that gin files bind."""
    registered = set()
    for path in _files("tasks", "*.py"):
        for module, name in re.findall(_REGISTERED, path.read_text(), re.M):
            importlib.import_module(_module_of(path))
            registered.add(f"{module or _module_of(path)}.{name}")
    names = _upstream_names()
    texts = "\n".join([GIN_TEXT, *(page.read_text() for page in PAGES)])
    for package, module in set(re.findall(r"^from (t5x[\w.]*) import (\w+)", GIN_TEXT, re.M)):
        written = re.findall(rf"(?<![\w.]){module}\.(\w+)", texts.replace("--gin.", " "))
        names |= {f"{package}.{module}.{name}" for name in written}
    names |= {name for name in recorded if name.startswith("t5x.")}
    registered |= recorded.keys() - names
    values = {name: _resolved(name) for name in names}
    values = {name: value for name, value in values.items() if _is_bindable(value)}
    values |= {name: _registered(name) for name in registered}
    return {name: parameters(value) for name, value in values.items() if value is not None}


def _module_of(path: pathlib.Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _upstream_names() -> set[str]:
    """Return the names of upstream T5X, whether we have them or not."""
    upstream = json.loads((HERE / "upstream_names.json").read_text())
    modules = {module: names.split() for module, names in upstream["public"].items()}
    modules = [*upstream["names"].items(), *modules.items()]
    return {f"t5x.{module}.{name}" for module, names in modules for name in names}


def _is_bindable(value: Any) -> bool:
    """Return whether a value is a function or a class, of no errors and no protocols."""
    if not inspect.isclass(value):
        return inspect.isroutine(value)
    return not issubclass(value, Exception) and not getattr(value, "_is_protocol", False)


def _resolved(name: str) -> Any:
    """Return what a name means, or None if there is no such name, of which t5x may warn."""
    with contextlib.suppress(ImportError, AttributeError), warnings.catch_warnings(action="ignore"):
        return pkgutil.resolve_name(name)
    return None


def _registered(selector: str) -> Any:
    with contextlib.suppress(ValueError):
        return gin.get_configurable(selector)
    return None


def gin_files(_: Group) -> Group:
    """Return the macros that each gin file sets."""
    macros = lambda path: sorted(set(re.findall(r"^([A-Z]\w*) *=", path.read_text(), re.M)))
    return {str(path.relative_to(ROOT)): macros(path) for path in GIN_FILES}


def python_names(recorded: Group) -> Group:
    """Return the parameters of what the Python examples of README and docs/ import and use."""
    names = set(recorded)
    for block in (block for page in PAGES for block in blocks(page.read_text())):
        with contextlib.suppress(SyntaxError):
            if block.language == "python":
                names |= _uses(ast.parse(block.text))
    values = {name: _resolved(name) for name in names}
    return {name: parameters(value) for name, value in values.items() if value is not None}


def _uses(tree: ast.AST) -> set[str]:
    """Return the names of our packages that a program imports, and those it takes of modules."""
    bound = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES
        for alias in node.names
    }
    attributes = {
        f"{bound[node.value.id]}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in bound
        and inspect.ismodule(_resolved(bound[node.value.id]))
    }
    return {*bound.values(), *attributes}


def tasks(recorded: Group) -> Group:
    """Return the tasks and mixtures that recipes register; of a test process, those recorded."""
    for module in re.findall(r"^import (tasks[\w.]*)", GIN_TEXT, re.M):
        importlib.import_module(module)
    names = {*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()}
    return {"seqio": sorted(names & set(recorded["seqio"]) if recorded else names)}


def commands(recorded: Group) -> Group:
    """Return the flags and positionals of each command."""
    texts = [path.read_text() for path in (*PAGES, *SCRIPTS)]
    named = re.findall(rf"-m ((?:{'|'.join(PACKAGES)})(?:\.\w+)*)\b", "\n".join(texts))
    group = {}
    for command in sorted({*named, *recorded, "convert from_hf"}):
        module, *words = command.split()
        if module != "launch/tpu.py" and _resolved(module) is not None:
            group[command] = _absl_flags() if module.startswith("t5x.") else _help(module, words)
    from launch import tpu

    parser = tpu.parser({})
    for do in ("create", "setup", "run", "supervise", "status", "logs", "stop", "delete"):
        group[f"launch/tpu.py {do}"] = _shown(lambda do=do: parser.parse_args([do, "--help"]))
    return group


def _absl_flags() -> list[str]:
    """Return the flags that the trainer's modules define, with their types."""
    importlib.import_module("t5x.train")
    by_module = flags.FLAGS.flags_by_module_dict()
    own = [flag for name in by_module if name.startswith("t5x") for flag in by_module[name]]
    return sorted(f"--{flag.name} {flag.flag_type()}" for flag in own)


def _help(name: str, words: list[str]) -> list[str]:
    module = importlib.import_module(name)
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{name}.__main__")
    return _shown(lambda: module.main([*words, "--help"]))


def _shown(show: Any) -> list[str]:
    """Return the flags, with their choices, and the positionals of a help text; none without it."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit), mock.patch.dict(os.environ, COLUMNS="200"):
            show()
    _, _, listed = out.getvalue().partition("positional arguments:\n")
    positionals = re.findall(r"^  (\S.*?)(?:  |$)", listed.partition("\n\n")[0], re.M)
    rows = re.findall(r"^  (-.*?)(?:  |$)", out.getvalue(), re.M)
    options = [" ".join(re.findall(r"--?\w+|\{.*?\}", row)) for row in rows]
    return positionals + sorted(set(options))


def scripts(_: Group) -> Group:
    """Return the names of scripts, of modules of tasks, and of what pyproject.toml installs."""
    installed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    modules = {path.relative_to(ROOT / "tasks").parts[0] for path in _files("tasks", "*.py")}
    group = {"pyproject.toml": sorted(installed), "tasks": sorted(modules)}
    for path in SCRIPTS:
        group.setdefault(path.parent.name, []).append(path.name)
    return group


def files(_: Group) -> Group:
    """Return the files of a run of one step and of a cache, and the keys and arrays in them."""
    from fakes import cache_jobs, toy, valid_run
    from t5x.gin_utils import summarize_gin_config

    with tempfile.TemporaryDirectory() as folder, valid_run.gin_apart():
        run, cache = pathlib.Path(folder, "MODEL_DIR"), pathlib.Path(folder, "cache")
        arguments = vars(valid_run.run(run, total_steps=1, eval_steps=1, eval_period=1))
        for name in ("model_dir", "partitioner", "trainer_cls", "checkpoint_cfg"):
            del arguments[name]
        arguments["summarize_config_fn"] = summarize_gin_config
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            toy.train(run, save={"period": 1}, **arguments)
            cache_jobs.make(cache_jobs.finished(cache))
        return _files_of(run) | _files_of(cache)


def _files_of(folder: pathlib.Path) -> Group:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    group: dict[str, set[str]] = {folder.name: set()}
    for path in paths:
        name = _patterned(str(path.relative_to(folder)))
        group[folder.name].add(name)
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                group[f"{folder.name}/{name}"] = set(arrays)
        elif path.suffix in (".json", ".jsonl") or path.name == "_METADATA":
            lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
            keys = {_patterned(key) for line in lines for key in _keys(json.loads(line))}
            group[f"{folder.name}/{name}"] = keys
    return {name: sorted(parts) for name, parts in group.items()}


def _patterned(name: str) -> str:
    for pattern, replacement in _PATTERNS:
        name = re.sub(pattern, replacement, name)
    return name


def _keys(value: dict[str, Any]) -> set[str]:
    """Return the keys of a JSON object and of those in it; of an event, after the event's name."""
    inner = {f"{k}/{key}" for k, v in value.items() if isinstance(v, dict) for key in v}
    before = f"{value['event']}: " if "event" in value else ""
    return {before + key for key in {*value, *inner}}


def environment(_: Group) -> Group:
    """Return the variables that scripts take from the environment, and those of env.example."""
    example = (ROOT / "launch/env.example").read_text()
    text = "\n".join(path.read_text() for path in SCRIPTS)
    return {
        "scripts": sorted(set(re.findall(r"\$\{([A-Z]\w*):?[-+]", text))),
        "launch/env.example": sorted(re.findall(r"^#?([A-Z]\w*)=", example, re.M)),
    }


GROUPS = {
    "tasks": tasks,
    "gin": gin_names,
    "gin files": gin_files,
    "python": python_names,
    "commands": commands,
    "scripts": scripts,
    "files": files,
    "environment": environment,
}


def main() -> None:
    """Write the file; what it names already stays in it as long as it exists."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    os.chdir(ROOT)
    before = json.loads(FILE.read_text()) if FILE.exists() else {}
    before["tasks"] = {}  # no test has registered others
    contract = {name: made(before.get(name, {})) for name, made in GROUPS.items()}
    FILE.write_text(json.dumps(contract, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
