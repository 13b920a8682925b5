"""Writes text of unknown origin into Markdown.

    plain("a <b> [c](javascript:d)")              # "a \\<b\\> \\[c\\](javascript\\:d)"
    fenced("x = '```'", "python")                 # a fence that is longer than those in the text
    table(["task", "loss"], [["ro", "2.1"]])      # all columns but the first are numbers

Nothing in the text acts as markup.
"""

import re
from collections.abc import Iterable, Sequence

from common.printable import JOINERS

# Markup of GitHub and the hub: anywhere (with formulas), at the ends of a word, in an address
# without a scheme, and at the start of a line.
_MARKUP = re.compile(
    r"[\\`*\[\]<>|&#~:$]|(?<![^\W_])_|_(?![^\W_])|(?<=www)\.|^[-+=]|(?<=\d)[.)](?= |$)"
)


def plain(text: str) -> str:
    """Return a text as one line of Markdown that shows it as it is."""
    # Other invisible characters mislead.
    visible = "".join(c if c.isprintable() or c in JOINERS else " " for c in text)
    return _MARKUP.sub(r"\\\g<0>", " ".join(visible.split()))


def fenced(text: str, language: str = "") -> str:
    """Return lines of code in a fence that no line can end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a table whose first `left` columns are texts and whose others are numbers."""
    lines = [[plain(cell) for cell in row] for row in (header, *rows)]
    lines.insert(1, [*["---"] * left, *["---:"] * (len(header) - left)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
