"""Every link, path, module and setting of README and docs exists."""

import functools
import importlib
import inspect
import re

import pytest

from fakes.pages import DOCS, PAGES, README, blocks, section
from fakes.paths import PACKAGES, ROOT

FOLDERS = (*PACKAGES, "benchmarks", "data", "docs", "gin", "launch", "tests")
ids = lambda path: str(path.relative_to(ROOT))
# What the user or a run writes.
USER_FILES = {
    *("gin/my_t5x_base.gin", "gin/my_t5x_tiny.gin", "launch/my_t5x_tiny.sh", "launch/env"),
    *("gin/uk_t5x_base.gin", "launch/uk_t5x_base.sh", "tasks/uk.py"),
    *(f"launch/cs_modernbert_base{phase}.sh" for phase in ("", "_long", "_decay")),
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
        if path.partition("/")[0] not in FOLDERS or "/" not in path or path in USER_FILES:
            continue
        if re.search(r"[<…]", path):
            continue
        files = (ROOT / path, ROOT / f"{path}.py", *ROOT.glob(path))
        assert any(file.exists() for file in files), path


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_module_exists(page):
    names = rf"(?<![\w/.-])(?:{'|'.join(PACKAGES)})(?:\.\w+)+"
    for word in code_of(page):
        if "/" in word or word.endswith((".py", ".md", ".sh", ".gin", ".html", ".csv")):
            continue
        for name in re.findall(names, word):
            if name not in USER_FILES:
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
    owner = importlib.import_module(module)
    for part in rest:
        if not hasattr(owner, part):
            return part in arguments(owner)
        owner = getattr(owner, part)
    return True


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or path.is_dir()


def arguments(function) -> set[str]:
    return set(inspect.signature(function).parameters) if callable(function) else set()


# How gin files and tables of the pages name a module, as in `trainer.Trainer.num_microbatches`.
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


def test_every_promise_names_the_file_of_its_tests():
    promises = section("docs/fault_tolerance.md", "What is promised")
    rows = re.findall(r"^\| (?!promise|-)(.*) \| (.*?) \|$", promises, re.M)
    assert rows
    assert not [promise for promise, proof in rows if "`tests/" not in proof]
