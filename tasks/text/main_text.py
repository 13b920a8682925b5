"""The main text of a web page, without navigation, comments and footers, by trafilatura.

main_text("<html><nav>…</nav><article><p>Ana are mere.</p>…")   # "Ana are mere."

Of a fragment of HTML that is text throughout, `html_text.text_of` keeps everything.
"""

import logging

from command_line import extras


def main_text(page: str) -> str | None:
    """Return the main text of a page of HTML, None if there is none. It depends on the page alone.

    Raises:
      ValueError: trafilatura is missing.
    """
    extras.require("trafilatura")
    import trafilatura

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # a line for each empty page
    # Rather less text than navigation among it.
    return trafilatura.extract(page, include_comments=False, favor_precision=True) or None
