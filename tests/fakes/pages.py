"""README and docs as tests read them: pages, sections, code blocks."""

import pathlib
import re
from typing import NamedTuple

from fakes.paths import ROOT

README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
OTHERS = ("CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md")
PAGES = [README, *DOCS, *(ROOT / name for name in OTHERS)]


class Block(NamedTuple):
    """A fenced code block: its language, or "", and its text."""

    language: str
    text: str


def blocks(text: str) -> list[Block]:
    """Return the fenced code blocks of a page or a section."""
    return [Block(*parts) for parts in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)]


def section(page: str | pathlib.Path, heading: str) -> str:
    """Return the text under a heading of second level, up to the next one."""
    _, title, text = (ROOT / page).read_text().partition(f"\n## {heading}\n")
    assert title, f"{page} has no section {heading!r}"
    return text.partition("\n## ")[0]


def commands(text: str) -> list[str]:
    """Return the command lines of the bash blocks of a page, continued lines joined."""
    lines: list[str] = []
    for block in blocks(text):
        if block.language == "bash":
            lines += block.text.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip()]
