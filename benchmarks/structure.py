"""Print the structure of a checkout: sizes by package, long functions, imports between modules.

  python benchmarks/structure.py                     # this checkout
  python benchmarks/structure.py ../another_checkout

Everything is read from the source by `ast`; nothing is imported. Code lines hold anything but
comments and docstrings. A function's length is without its docstring. Imports inside functions
count, too. Chain and cycles are those of the packages alone. A component is a module or a folder
directly in a package; its arrows are the imports of modules of one component by another.
"""

import argparse
import ast
import collections
import graphlib
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

NOT_PRODUCT = ("benchmarks", "docs", "tests")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LAYOUT_TOKENS = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
LONG = 60
Graph = dict[str, set[str]]


def docstring_lines(node: ast.AST) -> set[int]:
    """Return the lines of a node's docstring, none if it has none."""
    if not isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) or not ast.get_docstring(node):
        return set()
    return set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))


def code_lines(text: str, tree: ast.Module) -> int:
    """Return the number of lines of code."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (tokenize.COMMENT, *LAYOUT_TOKENS) and token.string:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code.difference(*map(docstring_lines, ast.walk(tree))))


def import_graph(trees: dict[str, ast.Module]) -> Graph:
    """Return, for each module, the modules of the checkout that it imports anywhere."""
    graph: Graph = {name: set() for name in trees}
    for name, imported in graph.items():
        for node in ast.walk(trees[name]):
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                modules = {f"{node.module}.{alias.name}" for alias in node.names} & trees.keys()
                # `from package import module` imports the package only if it also takes a name.
                only_modules = len(modules) == len(node.names)
                imported |= modules if only_modules else modules | {str(node.module)}
        imported &= trees.keys() - {name}
    return graph


def component_of(module: str) -> str:
    """Return the component of a module, the package itself for its __init__."""
    return ".".join(module.split(".")[:2])


def components(graph: Graph, package: str) -> tuple[Graph, int]:
    """Return the graph of a package's components, and the number of imports between them."""
    inside = {m for m in graph if m.startswith(f"{package}.")}
    between: Graph = {component_of(m): set() for m in inside}
    arrows = 0
    for module in inside:
        others = graph[module] & inside
        others = {n for n in others if component_of(n) != component_of(module)}
        arrows += len(others)
        between[component_of(module)] |= set(map(component_of, others))
    return between, arrows


def longest_chain(graph: Graph) -> int:
    """Return the number of imports in the longest chain; there is no cycle."""
    depth: dict[str, int] = {}
    for node in graphlib.TopologicalSorter(graph).static_order():
        depth[node] = 1 + max((depth[n] for n in graph[node]), default=-1)
    return max(depth.values(), default=0)


def cycles(graph: Graph) -> list[list[str]]:
    """Return the groups of modules that reach each other."""
    reach = {node: set(targets) for node, targets in graph.items()}
    for middle in graph:
        for targets in reach.values():
            if middle in targets:
                targets |= reach[middle]
    groups = {frozenset(n for n in reach[m] if m in reach[n]) for m in graph if m in reach[m]}
    return sorted(map(sorted, groups))


def report(root: Path) -> Iterator[str]:
    """Yield the lines to print of the checkout `root`."""
    product, long_functions = {}, []
    sizes: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for folder in sorted({path.parts[-2] for path in root.glob("*/*.py")}):
        for path in sorted((root / folder).rglob("*.py")):
            text, name = path.read_text(), path.relative_to(root)
            tree = ast.parse(text)
            size = {"files": 1, "lines": text.count("\n"), "code": code_lines(text, tree)}
            sizes[folder].update(size)
            if folder in NOT_PRODUCT:
                continue
            sizes["product"].update(size)
            product[".".join(name.with_suffix("").parts).removesuffix(".__init__")] = tree
            for node in ast.walk(tree):
                if isinstance(node, FUNCTIONS):
                    length = (node.end_lineno or 0) - node.lineno + 1 - len(docstring_lines(node))
                    long_functions += [f"  {length} {name} {node.name}"] * (length > LONG)
    sizes["product"] = sizes.pop("product")  # last
    graph = import_graph(product)
    heads = f"{'files':>6} {'lines':>8} {'code':>8} {'components':>11} {'arrows':>7} {'cycles':>7}"
    yield f"{'package':12} {heads}"
    for folder, size in sizes.items():
        line = f"{folder:12} {size['files']:6} {size['lines']:8,} {size['code']:8,}"
        if folder not in (*NOT_PRODUCT, "product"):
            between, arrows = components(graph, folder)
            line += f" {len(between):11} {arrows:7} {len(cycles(between)):7}"
        yield line
    yield f"functions over {LONG} lines: {len(long_functions)}"
    yield from long_functions
    groups = cycles(graph)
    yield f"import cycles: {len(groups)}"
    yield from (f"  {' '.join(group)}" for group in groups)
    if not groups:
        yield f"longest import chain: {longest_chain(graph)} imports"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    here = Path(__file__).parent.parent
    parser.add_argument("folder", nargs="?", type=Path, default=here, help="default: this checkout")
    for line in report(parser.parse_args().folder):
        print(line)
