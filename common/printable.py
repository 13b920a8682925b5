r"""Makes text of unknown origin safe to print.

    printable("\x1b[31mname\u202e")        # "\\x1b[31mname\\u202e"

A terminal obeys control characters, and marks of direction change the order of what is read.
"""

import unicodedata

JOINERS = "\u200c\u200d"  # invisible signs that Persian and Indic scripts write with
_SHOWN = f"\n\t{JOINERS}"


def printable(text: str) -> str:
    """Return a text in which characters that are not shown by themselves are escapes."""
    if text.isprintable():
        return text
    shown = lambda c: c.isprintable() or c in _SHOWN or unicodedata.category(c) == "Zs"
    return "".join(c if shown(c) else c.encode("unicode_escape").decode() for c in text)
