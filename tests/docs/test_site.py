"""The documentation site builds without a warning, and its navigation holds every page."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

from fakes.paths import PACKAGES, ROOT

CONFIG = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]


def pages_of(nav) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav if isinstance(nav, list) else nav.values()
    return [page for part in parts for page in pages_of(part)]


def test_the_navigation_holds_every_page():
    files = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(pages_of(CONFIG["nav"])) == sorted(files)


def test_the_api_has_every_package():
    assert {page.stem for page in (ROOT / "docs/api").iterdir()} == set(PACKAGES)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> pathlib.Path:
    """The site, built in a folder of its own by the command of the workflow."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "zensical.toml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    for package in PACKAGES:
        (folder / package).symlink_to(ROOT / package)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict"],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
    )
    said = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    assert done.returncode == 0, said
    assert "Warning" not in said, said
    assert "griffe:" not in said, said  # a docstring whose sections do not parse
    return folder / "site"


def test_the_site_builds_without_a_warning(built):
    for page in pages_of(CONFIG["nav"]):
        name = page.removesuffix(".md").removesuffix("index")
        assert (built / name / "index.html").exists(), page


@pytest.mark.parametrize(
    ("page", "name"),
    [("t5x", "t5x.train.train"), ("tasks", "tasks.corpora.add"), ("convert", "convert.to_hf")],
)
def test_the_api_shows_docstrings(built, page, name):
    assert f'id="{name}"' in (built / "api" / page / "index.html").read_text()
