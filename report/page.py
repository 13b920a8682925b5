"""The page: one HTML file that holds its style, script and data, and needs no network."""

import json
import pathlib
from collections.abc import Sequence

from common.atomic_file import replace_file
from report.content import content
from report.run_data import RunData

_PARTS = pathlib.Path(__file__).parent / "parts"
_SCRIPTS = ("format.js", "chart.js", "timeline.js", "sections.js", "page.js")


def html(runs: Sequence[RunData], now: float, reload: float | None = None) -> str:
    """Return the page of these runs, see `content.content`."""
    data = json.dumps(content(runs, now, reload), ensure_ascii=False, separators=(",", ":"))
    part = lambda name: (_PARTS / name).read_text("utf-8")
    pieces = {
        "{{style}}": part("style.css"),
        "{{script}}": "\n".join(part(name) for name in _SCRIPTS),
        # Inside a script element only `<` can end it.
        "{{data}}": data.replace("<", "\\u003c"),
    }
    page = part("page.html")
    for mark, text in pieces.items():
        before, after = page.split(mark)
        page = before + text + after
    return page


def write(text: str, path: str) -> None:
    """Write a page atomically: a reader gets either the old page or the new one."""
    replace_file(path, text.encode())
