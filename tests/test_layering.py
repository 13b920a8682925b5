"""The direction of imports, and the rules of the house that can be read from the source."""

import ast
import pathlib
import re
import subprocess

import pytest

from fakes.paths import ROOT

TRACKED = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard", "*.py"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
).stdout.split()
FILES = [pathlib.Path(p) for p in TRACKED] or [p.relative_to(ROOT) for p in ROOT.rglob("*.py")]
FILES = sorted(p for p in FILES if (ROOT / p).exists() and not p.parts[0].startswith("."))
ROOMS = ("t5x", "tasks", "convert", "vocabulary", "preflight", "report")
SOURCES = [p for p in FILES if p.parts[0] in ROOMS]
DOORS = {"train", "eval", "infer", "precompile", "main", "__main__"}
COMPUTE = [
    *("layers", "network", "losses", "adafactor", "partitioning", "train_step", "optimizers"),
    *("decoding", "schedules", "train_state", "metrics", "models", "layer_stacking", "triggers"),
]


def module_of(path: pathlib.Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in SOURCES}
TREES = {path: ast.parse((ROOT / path).read_text()) for path in FILES}


def imports(path: pathlib.Path, everywhere: bool = True) -> set[str]:
    """Full names of what a file imports; without `everywhere` only what loading it imports."""
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

    visit(TREES[path])
    return found


def closure(module: str) -> set[str]:
    """All that loading a module of ours imports, by way of our modules."""
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


def in_room(room: str) -> list[pathlib.Path]:
    return [p for p in SOURCES if p.parts[0] == room]


FORBIDDEN = {
    "tasks": ("jax", "flax", "t5x", "convert", "orbax", "optax"),
    "t5x": ("tasks", "datasets", "transformers", "convert", "vocabulary", "preflight", "report"),
    "convert": ("tasks", "t5x.trainer", "t5x.optimizers", "t5x.train_step", "t5x.adafactor")
    + ("t5x.train", "t5x.loop.training_loop", "t5x.batches"),
    "vocabulary": ("jax", "t5x.trainer", "t5x.train"),
}


@pytest.mark.parametrize("room", FORBIDDEN)
def test_no_arrow_turns_back(room):
    wrong = {str(p): touches(imports(p), *FORBIDDEN[room]) for p in in_room(room)}
    assert not {path: names for path, names in wrong.items() if names}


def test_what_is_imported_brings_nothing_forbidden_along():
    for path in SOURCES:
        room = path.parts[0]
        if room in ("tasks", "convert"):
            found = touches(closure(module_of(path)), *FORBIDDEN[room])
            assert not found, f"{path} imports {found} by way of others"


@pytest.mark.parametrize("name", COMPUTE)
def test_compute_runs_where_only_jax_and_flax_are(name):
    (module,) = [m for m in MODULES if m.startswith("t5x.") and m.rpartition(".")[2] == name]
    heavy = touches(closure(module), "tensorflow", "seqio", "gin", "datasets", "clu", "orbax")
    assert not heavy


def test_nothing_imports_gin_files_or_launch_scripts_or_tests():
    for path in SOURCES:
        assert not touches(imports(path), "tests", "launch", "benchmarks", "conftest"), path


def test_modules_import_each_other_in_no_circle():
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
        assert name not in trail, f"circle: {' -> '.join([*trail, name])}"
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
    return [node for node in ast.walk(TREES[path]) if isinstance(node, kinds)]


def lines_of(function) -> int:
    """Lines from `def` to the end, the docstring left out."""
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


def test_sizes_stay_small_in_the_middle():
    bodies = sorted(lines_of(f) for p in SOURCES for f in functions(p))
    assert bodies[len(bodies) // 2] <= 12


def test_no_file_is_a_drawer():
    drawers = {"utils", "util", "helpers", "helper", "common", "misc", "tools"}
    found = {str(path) for path in FILES if path.stem in drawers}
    assert found == {"t5x/utils.py"}
    body = TREES[pathlib.Path("t5x/utils.py")].body
    defines = [n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    assert not defines, "t5x/utils.py re-exports and defines nothing"


def dependencies() -> set[str]:
    files = ("requirements.in", "requirements-dev.in")
    lines = "".join((ROOT / file).read_text() for file in files).splitlines()
    names = {re.split(r"[\[=<>~ ]", line)[0] for line in lines if line and line[0] != "#"}
    roots = {n.replace("-", "_") for n in names}
    return roots | {"gin", "absl", "google", "optax", "orbax", "etils", "sklearn", "yaml"}


def test_no_file_of_t5x_hides_a_folder_or_a_dependency():
    """Started as a script, t5x/train.py has t5x/ first on sys.path."""
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith(".")}
    taken = (folders | dependencies()) - {"t5x"}
    names = {p.stem if p.suffix == ".py" else p.name for p in (ROOT / "t5x").iterdir()}
    assert not names & taken


def test_gin_is_no_package():
    """An __init__.py would hide the gin library."""
    assert not list((ROOT / "gin").rglob("*.py"))


def reads_the_environment(path) -> list[int]:
    found = []
    for node in ast.walk(TREES[path]):
        name = getattr(node, "attr", None) if isinstance(node, ast.Attribute) else None
        owner = getattr(getattr(node, "value", None), "id", None)
        if (owner, name) in (("os", "environ"), ("os", "getenv"), ("flags", "FLAGS")):
            found.append(node.lineno)
        if owner == "flags" and (name or "").startswith("DEFINE_"):
            found.append(node.lineno)
    return found


def test_flags_and_environment_are_read_in_doors():
    for path in SOURCES:
        if path.stem not in DOORS and path.parts[0] in ("t5x", "tasks"):
            lines = reads_the_environment(path)
            assert not lines, f"{path}:{lines} reads flags or the environment"


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_a_module_says_what_it_is_for(path):
    assert ast.get_docstring(TREES[path]) or not TREES[path].body


def test_every_test_file_mirrors_a_module():
    folders = {p.name for p in ROOT.iterdir() if p.is_dir()}
    scripts = {p.stem for p in (ROOT / "launch").glob("*.sh")}
    stems = {p.stem for p in SOURCES} | folders | scripts
    beyond = {"layering", "recipes", "ro", "golden"}  # the source itself, the gin files, the data
    for path in FILES:
        if path.parts[0] == "tests" and path.stem.startswith("test_") and len(path.parts) == 2:
            name = path.stem.removeprefix("test_")
            first = {stem.split("_")[0] for stem in stems} | beyond
            assert name in stems or name.split("_")[0] in first, f"{path} mirrors no module"
