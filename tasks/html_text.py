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
        self._seen: list[str] = []
        # Unseen elements that are open, with their text: it is seen if they are never closed.
        self._unseen: list[tuple[str, list[str]]] = []

    def text(self) -> str:
        """What is seen of all that was fed, lines and blanks as they came."""
        return "".join([*self._seen, *("\n" + "".join(held) for _, held in self._unseen)])

    def handle_starttag(self, tag, attrs):
        if tag in _UNSEEN:
            self._unseen.append((tag, []))
        if tag in _BLOCKS:
            self.handle_data("\n")

    def handle_endtag(self, tag):
        opened = (i for i in reversed(range(len(self._unseen))) if self._unseen[i][0] == tag)
        if (i := next(opened, None)) is not None:
            del self._unseen[i:]
        if tag in _BLOCKS:
            self.handle_data("\n")

    def handle_data(self, data):
        (self._unseen[-1][1] if self._unseen else self._seen).append(data)


def text_of(source: str) -> str:
    """Returns the text of an HTML fragment, blanks made single; plain text stays as it is.

    What only looks like HTML ("if a < b") is read as a browser would: kept. What stands behind a
    <script> or <head> that is never closed comes last. What cannot be parsed stays as it is too.
    """
    reader = _Reader()
    try:
        reader.feed(source)
        reader.close()
        reader.handle_data(reader.rawdata)  # which close() leaves in an open <script>
        text = reader.text()
    except AssertionError:  # of Python's parser, at "<![foo"
        text = source
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)
