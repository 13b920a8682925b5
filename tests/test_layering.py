"""The direction of imports, and what of it depends on the names of files."""

import ast
import collections
import functools
import graphlib
import itertools
import pathlib
import re
import tomllib

import pytest

from fakes.paths import PACKAGES, ROOT, is_shipped

PATHS = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
SOURCES = sorted(path.relative_to(ROOT) for path in filter(is_shipped, PATHS))
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
    names = set()

    def visit(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                names.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}:{child.lineno} is a relative import"
                names.add(child.module)
                names.update(f"{child.module}.{alias.name}" for alias in child.names)
            elif everywhere or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                visit(child)

    visit(tree(path))
    return names


def closure(module: str) -> set[str]:
    """Return all names that loading one of our modules imports, directly or not."""
    seen, reached, todo = set(), set(), [module]
    while todo:
        name = todo.pop()
        if name in seen or name not in MODULES:
            continue
        seen.add(name)
        names = imports(MODULES[name], everywhere=False)
        reached |= names
        todo += [name.rpartition(".")[0], *names]
    return reached


def touches(names: set[str], *packages: str) -> set[str]:
    return {n for n in names if any(n == p or n.startswith(f"{p}.") for p in packages)}


def modules_of(package: str) -> list[pathlib.Path]:
    return [p for p in SOURCES if p.parts[0] == package]


FORBIDDEN = {
    "tasks": ("jax", "flax", "t5x", "convert", "orbax", "optax"),
    "t5x": ("tasks", "datasets", "transformers", "convert", "vocabulary", "preflight", "report")
    + ("evaluation",),
    "convert": ("tasks", "t5x.trainer", "t5x.optimizers", "t5x.train_step", "t5x.adafactor")
    + ("t5x.train", "t5x.loop.training_loop", "t5x.input_pipeline.stream"),
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
            forbidden = touches(closure(module_of(path)), *FORBIDDEN[package])
            assert not forbidden, f"{path} imports {forbidden} through other modules"


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


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return the nodes of a cycle, none if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_modules_import_each_other_in_no_cycle():
    def imported(name):
        modules = imports(MODULES[name], everywhere=False) & MODULES.keys()
        return {n for n in modules if not f"{name}.".startswith(f"{n}.")}  # its own package

    assert not find_cycle({name: imported(name) for name in MODULES})


FOLDERS = sorted({module_of(path.parent) for path in SOURCES})


@pytest.mark.parametrize("package", FOLDERS)
def test_components_of_a_package_import_each_other_in_no_cycle(package):
    """A component is a module or a folder directly in a package; imports in functions count."""
    graph = collections.defaultdict(set)
    prefix = f"{package}."
    for module, path in MODULES.items():
        if module.startswith(prefix):
            component = module.removeprefix(prefix).split(".")[0]
            inside = {n.removeprefix(prefix) for n in imports(path) if n.startswith(prefix)}
            graph[component] |= {name.split(".")[0] for name in inside} - {component}
    assert not find_cycle(graph)


def dependencies() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    names = {re.split(r"[\[=<>~ ;]", line)[0] for line in lines}
    roots = {n.replace("-", "_") for n in names}
    return roots | {"gin", "absl", "google", "optax", "orbax", "etils", "sklearn", "yaml"}


def test_no_file_of_t5x_hides_a_folder_or_a_dependency():
    """Started as a script, t5x/train.py has t5x/ first on sys.path."""
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and p.name[0] not in "._"}
    taken = (folders | dependencies()) - {"t5x"}
    names = {p.stem if p.suffix == ".py" else p.name for p in (ROOT / "t5x").iterdir()}
    assert not names & taken


def test_gin_is_not_a_package():
    """An __init__.py would hide the gin library."""
    assert not list((ROOT / "gin").rglob("*.py"))


def reads_the_environment(path) -> list[int]:
    lines = []
    for node in ast.walk(tree(path)):
        name = getattr(node, "attr", None) if isinstance(node, ast.Attribute) else None
        owner = getattr(getattr(node, "value", None), "id", None)
        if (owner, name) in (("os", "environ"), ("os", "getenv"), ("flags", "FLAGS")):
            lines.append(node.lineno)
        if owner == "flags" and (name or "").startswith("DEFINE_"):
            lines.append(node.lineno)
    return lines


def test_flags_and_environment_are_read_in_entry_points():
    for path in SOURCES:
        if path.stem not in ENTRY_POINTS and path.parts[0] in ("t5x", "tasks"):
            lines = reads_the_environment(path)
            assert not lines, f"{path}:{lines} reads flags or the environment"
