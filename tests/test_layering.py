"""The direction of imports, and other rules of structure that can be read from the source."""

import ast
import functools
import pathlib
import re
import subprocess

import pytest

from fakes.paths import PACKAGES, ROOT


def tracked(pattern: str) -> list[str]:
    """Paths that git tracks or would add, from the root of the repository."""
    command = ["git", "ls-files", "-co", "--exclude-standard", pattern]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [path for path in done.stdout.split() if (ROOT / path).exists()]


FILES = [pathlib.Path(p) for p in tracked("*.py")] or [
    p.relative_to(ROOT) for p in ROOT.rglob("*.py")
]
FILES = sorted(p for p in FILES if not p.parts[0].startswith("."))
SOURCES = [p for p in FILES if p.parts[0] in PACKAGES]
ENTRY_POINTS = {"train", "eval", "infer", "precompile", "main", "__main__"}
COMPUTE = [
    *("layers", "network", "losses", "adafactor", "partitioning", "train_step", "optimizers"),
    *("decoding", "schedules", "train_state", "metrics", "models", "layer_stacking", "triggers"),
]


def module_of(path: pathlib.Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in SOURCES}


@functools.cache
def tree(path: pathlib.Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def imports(path: pathlib.Path, everywhere: bool = True) -> set[str]:
    """Return the full names that a file imports; without `everywhere`, at import time only."""
    found = set()

    def visit(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}:{child.lineno} is a relative import"
                found.add(child.module)
                found.update(f"{child.module}.{alias.name}" for alias in child.names)
            elif everywhere or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                visit(child)

    visit(tree(path))
    return found


def closure(module: str) -> set[str]:
    """Return all names that loading one of our modules imports, directly or not."""
    seen, found, todo = set(), set(), [module]
    while todo:
        name = todo.pop()
        if name in seen or name not in MODULES:
            continue
        seen.add(name)
        names = imports(MODULES[name], everywhere=False)
        found |= names
        todo += [name.rpartition(".")[0], *names]
    return found


def touches(names: set[str], *packages: str) -> set[str]:
    return {n for n in names if any(n == p or n.startswith(f"{p}.") for p in packages)}


def modules_of(package: str) -> list[pathlib.Path]:
    return [p for p in SOURCES if p.parts[0] == package]


FORBIDDEN = {
    "tasks": ("jax", "flax", "t5x", "convert", "orbax", "optax"),
    "t5x": ("tasks", "datasets", "transformers", "convert", "vocabulary", "preflight", "report")
    + ("evaluation",),
    "convert": ("tasks", "t5x.trainer", "t5x.optimizers", "t5x.train_step", "t5x.adafactor")
    + ("t5x.train", "t5x.loop.training_loop", "t5x.batches"),
    "vocabulary": ("jax", "t5x.trainer", "t5x.train"),
    "evaluation": ("t5x.trainer", "t5x.train", "t5x.loop", "t5x.optimizers", "transformers"),
}


@pytest.mark.parametrize("package", FORBIDDEN)
def test_a_package_does_not_import_what_is_forbidden(package):
    wrong = {str(p): touches(imports(p), *FORBIDDEN[package]) for p in modules_of(package)}
    assert not {path: names for path, names in wrong.items() if names}


def test_indirect_imports_bring_nothing_forbidden():
    for path in SOURCES:
        package = path.parts[0]
        if package in ("tasks", "convert"):
            found = touches(closure(module_of(path)), *FORBIDDEN[package])
            assert not found, f"{path} imports {found} through other modules"


@pytest.mark.parametrize("name", COMPUTE)
def test_compute_modules_need_only_jax_and_flax(name):
    modules = [m for m in MODULES if m.startswith("t5x.") and m.rpartition(".")[2] == name]
    assert modules
    for module in modules:
        heavy = touches(closure(module), "tensorflow", "seqio", "gin", "datasets", "clu", "orbax")
        assert not heavy, module


def test_nothing_imports_gin_files_or_launch_scripts_or_tests():
    for path in SOURCES:
        assert not touches(imports(path), "tests", "launch", "benchmarks", "conftest"), path


def test_imports_have_no_cycle():
    graph = {
        name: {
            n
            for n in imports(path, everywhere=False)
            if n in MODULES
            and not f"{name}.".startswith(f"{n}.")  # a sibling is of the same package
        }
        for name, path in MODULES.items()
    }
    done: set[str] = set()

    def walk(name, trail):
        assert name not in trail, f"cycle: {' -> '.join([*trail, name])}"
        if name not in done:
            for other in sorted(graph[name]):
                walk(other, [*trail, name])
            done.add(name)

    for name in graph:
        walk(name, [])


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_is_at_most_600_lines(path):
    assert len((ROOT / path).read_text().splitlines()) <= 600


def functions(path):
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in ast.walk(tree(path)) if isinstance(node, kinds)]


def lines_of(function) -> int:
    """Return the number of lines of a function without its docstring."""
    first = function.body[0]
    is_text = isinstance(first, ast.Expr) and isinstance(
        getattr(first, "value", None), ast.Constant
    )
    docstring = first.end_lineno - first.lineno + 1 if is_text else 0
    return function.end_lineno - function.lineno + 1 - docstring


def test_a_function_is_at_most_60_lines_beside_its_docstring():
    for path in FILES:
        for function in functions(path):
            lines, limit = lines_of(function), 120 if function.name == "train" else 60
            assert lines <= limit, f"{path}:{function.lineno} {function.name} has {lines} lines"


def test_the_median_function_is_at_most_12_lines():
    bodies = sorted(lines_of(f) for p in SOURCES for f in functions(p))
    assert bodies[len(bodies) // 2] <= 12


def test_no_file_is_named_after_nothing():
    vague = {"utils", "util", "helpers", "helper", "common", "misc", "tools"}
    found = {str(path) for path in FILES if path.stem in vague}
    assert found == {"t5x/utils.py"}
    body = tree(pathlib.Path("t5x/utils.py")).body
    defines = [n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    assert not defines, "t5x/utils.py re-exports and defines nothing"


def dependencies() -> set[str]:
    lists = sorted((ROOT / "requirements").glob("*.in"))
    lines = "".join(file.read_text() for file in lists).splitlines()
    names = {re.split(r"[\[=<>~ ;]", line)[0] for line in lines if line and line[0] != "#"}
    roots = {n.replace("-", "_") for n in names}
    return roots | {"gin", "absl", "google", "optax", "orbax", "etils", "sklearn", "yaml"}


def test_no_file_of_t5x_hides_a_folder_or_a_dependency():
    """Started as a script, t5x/train.py has t5x/ first on sys.path."""
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith(".")}
    taken = (folders | dependencies()) - {"t5x"}
    names = {p.stem if p.suffix == ".py" else p.name for p in (ROOT / "t5x").iterdir()}
    assert not names & taken


def test_gin_is_not_a_package():
    """An __init__.py would hide the gin library."""
    assert not list((ROOT / "gin").rglob("*.py"))


def reads_the_environment(path) -> list[int]:
    found = []
    for node in ast.walk(tree(path)):
        name = getattr(node, "attr", None) if isinstance(node, ast.Attribute) else None
        owner = getattr(getattr(node, "value", None), "id", None)
        if (owner, name) in (("os", "environ"), ("os", "getenv"), ("flags", "FLAGS")):
            found.append(node.lineno)
        if owner == "flags" and (name or "").startswith("DEFINE_"):
            found.append(node.lineno)
    return found


def test_flags_and_environment_are_read_in_entry_points():
    for path in SOURCES:
        if path.stem not in ENTRY_POINTS and path.parts[0] in ("t5x", "tasks"):
            lines = reads_the_environment(path)
            assert not lines, f"{path}:{lines} reads flags or the environment"


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_a_module_has_a_docstring(path):
    assert ast.get_docstring(tree(path)) or not tree(path).body


# Folders of tests/ that mirror no package.
OTHER_TESTS = ("benchmarks", "docs", "gin")


def path_of_test(module: pathlib.Path) -> str:
    """tests/t5x/loop/test_triggers.py for t5x/loop/triggers.py; test_main.py for __main__.py."""
    return str("tests" / module.parent / f"test_{module.stem.strip('_')}.py")


def defines_something(path: pathlib.Path) -> bool:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return any(isinstance(node, kinds) for node in tree(path).body)


def test_every_module_has_a_test_file_of_its_name():
    paths = set(map(str, FILES))
    modules = [p for p in SOURCES if p.stem != "__init__" and defines_something(p)]
    missing = {str(p) for p in modules if path_of_test(p) not in paths}
    assert not missing, f"add {sorted(path_of_test(pathlib.Path(m)) for m in missing)}"


def names_a_module(path: pathlib.Path) -> bool:
    """Whether tests/a/test_b.py or tests/a/test_b_more.py has a module a/b.py."""
    folder = pathlib.Path(*path.parts[1:-1])
    stems = {p.stem.strip("_") for p in SOURCES if p.parent == folder}
    if folder.parts == ("launch",):
        stems = {p.stem for p in (ROOT / "launch").iterdir()}
    name = path.stem.removeprefix("test_")
    return any(name == stem or name.startswith(f"{stem}_") for stem in stems)


def test_every_test_file_is_named_after_a_module_of_its_folder():
    tests = [p for p in FILES if p.parts[0] == "tests" and p.stem.startswith("test_")]
    mirrors = [p for p in tests if len(p.parts) > 2 and p.parts[1] not in OTHER_TESTS]
    odd = {str(p) for p in mirrors if not names_a_module(p)}
    assert not odd


def test_a_folder_shows_at_most_35_entries():
    entries: dict[pathlib.Path, set[str]] = {}
    for path in map(pathlib.Path, tracked("*")):
        for child in (path, *path.parents[:-1]):
            entries.setdefault(child.parent, set()).add(child.name)
    # Checkpoints have a file for each array, and launch/ has a script for each recipe.
    data, launch = pathlib.Path("tests/golden"), pathlib.Path("launch")
    recipes = {path.stem for path in (ROOT / "gin").glob("*.gin")}
    entries[launch] = {name for name in entries[launch] if pathlib.Path(name).stem not in recipes}
    full = {str(k): len(v) for k, v in entries.items() if len(v) > 35 and data not in k.parents}
    assert not full


def test_a_class_name_is_defined_once():
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path))
    assert not {k: found for k, found in places.items() if len(found) > 1}
