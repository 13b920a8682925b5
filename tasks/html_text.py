"""Text of HTML, as a reader sees it: blocks on lines of their own, no tags, entities as letters.

text_of("<p>Hi &amp; <b>bye</b></p><pre>x = 1</pre>")   -> "Hi & bye\\nx = 1"
"""

import html.parser

# What stands on a line of its own.
_BLOCKS = frozenset(
    ("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figure", "footer")
    + ("form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p")
    + ("pre", "section", "table", "td", "th", "tr", "ul")
)
_UNSEEN = frozenset(("script", "style", "head", "template"))


class _Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._unseen = 0

    def handle_starttag(self, tag, attrs):
        self._unseen += tag in _UNSEEN
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag):
        self._unseen -= tag in _UNSEEN and self._unseen > 0
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data):
        if not self._unseen:
            self.parts.append(data)


def text_of(source: str) -> str:
    """Returns the text of an HTML fragment, blanks made single; plain text stays as it is.

    What only looks like HTML ("if a < b") is read as a browser would: kept.
    """
    reader = _Reader()
    reader.feed(source)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.parts).split("\n"))
    return "\n".join(line for line in lines if line)
