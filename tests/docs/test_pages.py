"""README and docs: true to the code, and every name in them exists."""

import ast
import functools
import importlib
import inspect
import re

import pytest

from fakes.pages import DOCS, PAGES, README, blocks, section
from fakes.paths import PACKAGES, ROOT

FOLDERS = (*PACKAGES, "benchmarks", "data", "docs", "gin", "launch", "tests")
ids = lambda path: str(path.relative_to(ROOT))
# Files that the user writes, or a run.
OF_THE_USER = {
    *("gin/my_t5x_base.gin", "gin/my_t5x_tiny.gin", "launch/my_t5x_tiny.sh", "launch/env"),
    *("gin/uk_t5x_base.gin", "launch/uk_t5x_base.sh", "tasks/uk.py"),
    *("tasks/ka_umt5_small.py", "launch/ka_umt5_small.sh", "gin/ka_umt5_small_network.gin"),
    *("data/quality/train.csv", "tasks.my_task", "tasks/my_language.py", "tasks.my_language"),
    "vocabulary.model",  # a file of MODEL_DIR
}


def test_the_readme_links_every_page():
    text = README.read_text()
    for page in DOCS:
        assert page.name == "index.md" or f"(docs/{page.name})" in text, page.name


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_leads_somewhere(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


def anchors(path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
    return {
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def code_of(page) -> set[str]:
    """Words in code: of inline code and of blocks."""
    text = page.read_text()
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))
    return {word for code in [*inline, *(b.text for b in blocks(text))] for word in code.split()}


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_path_exists(page):
    for word in code_of(page):
        path = word.strip("\"'`,;:()[]{}").partition("::")[0].partition(":")[0]
        path = path.removeprefix("--gin_file=").removeprefix("@")
        if path.partition("/")[0] not in FOLDERS or "/" not in path or path in OF_THE_USER:
            continue
        if re.search(r"[<…]", path):
            continue
        found = (ROOT / path).exists() or (ROOT / f"{path}.py").exists() or list(ROOT.glob(path))
        assert found, path


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_module_exists(page):
    names = rf"(?<![\w/.-])(?:{'|'.join(PACKAGES)})(?:\.\w+)+"
    for word in code_of(page):
        if "/" in word or word.endswith((".py", ".md", ".sh", ".gin", ".html", ".csv")):
            continue
        for name in re.findall(names, word):
            if name not in OF_THE_USER:
                assert exists(name), name


@functools.cache
def exists(name: str) -> bool:
    """Whether a dotted name is a module, or is defined in one."""
    module, rest = name, []
    while module and not is_module(module):
        module, _, last = module.rpartition(".")
        rest.insert(0, last)
    if not module or not rest:
        return bool(module)
    found = importlib.import_module(module)
    for part in rest:
        if not hasattr(found, part):
            return part in arguments(found)
        found = getattr(found, part)
    return True


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or path.is_dir()


def arguments(function) -> set[str]:
    return set(inspect.signature(function).parameters) if callable(function) else set()


# Of the inline code of pages: module.Class.argument, as gin files and tables name it.
MODULES = {
    "utils": "t5x.utils",
    "trainer": "t5x.trainer",
    "partitioning": "t5x.partitioning",
    "network": "t5x.examples.t5.network",
    "adafactor": "t5x.adafactor",
    "decoding": "t5x.decoding",
    "train_script": "t5x.train",
    "infer_script": "t5x.infer",
}


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_a_setting_that_a_page_names_exists(page):
    names = re.findall(rf"\b({'|'.join(MODULES)})\.(\w+)\.(\w+)\b", page.read_text())
    for module, owner, argument in names:
        main = "t5x.precompile" if owner == "precompile" else MODULES[module]
        configurable = getattr(importlib.import_module(main), owner)
        assert argument in inspect.signature(configurable).parameters, f"{owner}.{argument}"


def test_every_promise_names_tests_that_exist():
    page = (ROOT / "docs/fault_tolerance.md").read_text()
    file, named = None, 0
    for path, test in re.findall(r"`(tests/[\w/]+\.py)?::(\w+)`", page):
        file = path or file  # `::test_b` means another test of the file before it
        assert test in functions_of(file), f"{file}::{test}"
        named += 1
    assert named > 50


@functools.cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_promise_has_a_test():
    rows = re.findall(r"^\| (?!promise)(.*?) \| (.*?) \|$", what_is_promised(), re.M)
    assert len(rows) > 45
    assert not [promise for promise, proof in rows if "::" not in proof and proof != "the same"]


def what_is_promised() -> str:
    return section("docs/fault_tolerance.md", "What is promised").replace("|---|---|", "")


@functools.cache
def messages() -> str:
    """Every string of the packages, with "…" for placeholders, and every script."""
    paths = [path for folder in (*PACKAGES, "launch") for path in (ROOT / folder).rglob("*.py")]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    found = [path.read_text() for path in (ROOT / "launch").glob("*.sh")]
    for node in nodes:
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [getattr(part, "value", None) for part in parts]
        if isinstance(node, ast.JoinedStr | ast.Constant):
            found.append("".join(text if isinstance(text, str) else "…" for text in texts))
    return "\n".join(found)


# Messages of other programs.
FOREIGN = {"libtpu … already in use", "… may be present on this machine, but …", "nvidia-*"}


def test_every_message_of_the_troubleshooting_page_exists():
    text = (ROOT / "docs/troubleshooting.md").read_text()
    cells = re.findall(r"^\| (`.*?) \| .*\|$", text, re.M)
    assert len(cells) > 25
    for message in (found for cell in cells for found in re.findall(r"`([^`]+)`", cell)):
        if message in FOREIGN:
            continue
        for part in re.split(r"…|[\d,]*\d|\bN\b|\bon workers?\b", message):
            words = part.strip(" '(,[]")
            assert len(words) < 4 or words in messages(), f"{message!r}: {words!r}"
