"""One HTML page in one file, with the style that all our pages share; it needs no network.

    text = page("ro_small, train", "<header>…</header>", style=".bar { height: 1em; }")

A page with scripts has `is_complete=False`, and its script sets `data-ready` when all is drawn.
"""

import html
import pathlib
import re

_PARTS = pathlib.Path(__file__).parent / "parts"


def page(title: str, body: str, style: str = "", is_complete: bool = True) -> str:
    """Return a page whose body is HTML; `style` follows the shared one."""
    return fill(
        (_PARTS / "page.html").read_text("utf-8"),
        title=html.escape(title),
        ready=' data-ready="true"' if is_complete else "",
        style=(_PARTS / "page.css").read_text("utf-8") + style,
        body=body,
    )


def fill(template: str, **parts: str) -> str:
    """Return the template with a part in the place of each {{name}}."""
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], template)
