"""Prints the structure of a checkout: sizes, imports, and how many parts a reader sees at once.

  python benchmarks/structure.py                     # this checkout
  python benchmarks/structure.py ../another_checkout

Everything is read from the source by `ast`; nothing is imported. Code lines hold anything but
comments and docstrings. A function's length includes its signature and docstring. Imports inside
functions are edges too; a package's `__init__.py` counts as the package.

The components of a package are its sub-packages and its top-level modules. Their imports are the
distinct imports between two of them, and their layers the components in the longest chain of
imports; "cyclic" means that components import each other, directly or not, even if single modules
do not.
"""

import argparse
import ast
import collections
import graphlib
import io
import os
import statistics
import tokenize
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("t5x", "tasks", "preflight", "convert", "vocabulary", "report")
LAYERED = PACKAGES[:4]  # whose components are counted
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LAYOUT_TOKENS = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
Graph = dict[str, set[str]]


def comment_and_code_lines(text: str, nodes: list[ast.AST]) -> tuple[int, int]:
    """Return the number of lines that are only a comment, and of lines of code."""
    comments, code = set(), set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in LAYOUT_TOKENS and token.string:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in nodes:
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and ast.get_docstring(node):
            code -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(comments - code), len(code)


def import_graph(nodes: dict[str, list[ast.AST]]) -> Graph:
    """Return, for each module, the modules of the checkout that it imports anywhere."""
    graph: Graph = {name: set() for name in nodes}
    for name, imported in graph.items():
        for node in nodes[name]:
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                modules = {f"{node.module}.{alias.name}" for alias in node.names} & nodes.keys()
                # `from package import module` imports the package only if it also takes a name.
                only_modules = len(modules) == len(node.names)
                imported |= modules if only_modules else modules | {node.module}
        imported &= nodes.keys() - {name}
    return graph


def longest_chain(graph: Graph) -> int:
    """Return the number of nodes in the longest chain, or 0 if there is a cycle."""
    depth: dict[str, int] = {}
    try:
        for node in graphlib.TopologicalSorter(graph).static_order():
            depth[node] = 1 + max((depth[n] for n in graph[node]), default=0)
    except graphlib.CycleError:
        return 0
    return max(depth.values(), default=0)


def cycles(graph: Graph) -> int:
    """Return the number of groups of nodes that reach each other."""
    reach = {node: set(targets) for node, targets in graph.items()}
    for middle in graph:
        for targets in reach.values():
            if middle in targets:
                targets |= reach[middle]
    return len({frozenset(n for n in reach[m] if m in reach[n]) for m in graph if m in reach[m]})


def component_graph(graph: Graph, package: str) -> Graph:
    """Return the imports between the components of a package."""
    component_of = {n: ".".join(n.split(".")[:2]) for n in graph if n.startswith(f"{package}.")}
    components: Graph = {component: set() for component in component_of.values()}
    for name, component in component_of.items():
        imported = {component_of[n] for n in graph[name] & component_of.keys()}
        components[component] |= imported - {component}
    return components


def folder_sizes(root: Path) -> Iterator[tuple[int, str]]:
    """Yield the number of visible entries of each folder that people read."""
    for folder, folders, files in os.walk(root):
        unread = ("__pycache__", "golden")  # golden: recorded checkpoints, an array a file
        folders[:] = [name for name in folders if name[0] != "." and name not in unread]
        visible = [name for name in files if name[0] != "."]
        yield len(folders) + len(visible), os.path.relpath(folder, root)


def measure(root: Path) -> Iterator[tuple[str, object]]:
    """Yield the name and the value of each measure of the checkout `root`."""
    texts = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }
    modules = [name for name, path in texts.items() if path.name != "__init__.py"]
    texts = {name: path.read_text() for name, path in texts.items()}
    nodes = {name: list(ast.walk(ast.parse(text))) for name, text in texts.items()}
    lines = [len(text.splitlines()) for text in texts.values()]
    counts = [comment_and_code_lines(texts[name], nodes[name]) for name in texts]
    comments, code = (sum(column) for column in zip(*counts, strict=True))
    everything = [node for some in nodes.values() for node in some]
    functions = [node for node in everything if isinstance(node, FUNCTIONS)]
    sizes = sorted(f.end_lineno - f.lineno + 1 for f in functions)
    documented = sum(ast.get_docstring(f) is not None for f in functions) / len(functions)
    classes = collections.Counter(n.name for n in everything if isinstance(n, ast.ClassDef))
    graph = import_graph(nodes)
    importers = collections.Counter(n for imported in graph.values() for n in imported)
    tests = {path.stem.removeprefix("test_") for path in (root / "tests").rglob("test_*.py")}
    entries, folder = max(folder_sizes(root))
    without_test = [n for n in modules if n.split(".")[-1].strip("_") not in tests]
    yield "files / lines / code lines", f"{len(texts)} / {sum(lines)} / {code}"
    yield "median / largest file", f"{statistics.median(lines):.0f} / {max(lines)}"
    yield "functions", len(functions)
    median, p90 = sizes[len(sizes) // 2], sizes[len(sizes) * 9 // 10]
    yield "median / p90 / longest function", f"{median} / {p90} / {sizes[-1]}"
    yield "functions with a docstring", f"{documented:.0%}"
    yield "full-line comments per code line", f"{comments / code:.1%} ({comments})"
    yield "import edges", sum(map(len, graph.values()))
    yield "longest import chain", f"{max(0, longest_chain(graph) - 1)} imports"
    yield "import cycles", cycles(graph)
    yield "modules with one importer", sum(importers[name] == 1 for name in modules)
    yield "modules without a test of their name", len(without_test)
    yield "class names defined twice", ", ".join(sorted(n for n in classes if classes[n] > 1)) or 0
    yield "most entries in a folder", f"{entries} in {folder}/"
    for package in LAYERED:
        components = component_graph(graph, package)
        layers = longest_chain(components)
        shown = f"{layers} layers" if layers or not components else "cyclic"
        imported = sum(map(len, components.values()))
        yield f"{package}/", f"{len(components)} components, {shown}, {imported} imports"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = Path(__file__).parent.parent
    parser.add_argument("folder", nargs="?", type=Path, default=here, help="default: this checkout")
    for name, value in measure(parser.parse_args().folder):
        print(f"{name:38} {value}")
