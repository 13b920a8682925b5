"""The documentation site builds without a warning, and its navigation holds every page."""

import os
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
    assert {page.stem for page in (ROOT / "docs/api").iterdir()} == set(PACKAGES)


@pytest.mark.slow
def test_the_command_of_the_workflow_builds_the_site_without_a_warning(tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
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
    output = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    assert done.returncode == 0, output
    assert "Warning" not in output, output
    assert "griffe:" not in output, output  # a docstring whose sections do not parse
    for page in pages_of(CONFIG["nav"]):
        name = page.removesuffix(".md").removesuffix("index")
        assert (folder / "site" / name / "index.html").exists(), page
    for package, name in (("t5x", "t5x.train.train"), ("tasks", "tasks.corpora.add")):
        assert f'id="{name}"' in (folder / f"site/api/{package}/index.html").read_text()
