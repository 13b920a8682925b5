"""The visible text of HTML.

    text_of("<p>Hi &amp; <b>bye</b></p><pre>x = 1</pre>")   # "Hi & bye\\nx = 1"

Blocks are on lines of their own, tags are removed, and entities become characters.
"""

import collections
import html
import html.parser
import re

# All elements of the HTML standard, then the obsolete ones.
_NAMES = """
a abbr address area article aside audio b base bdi bdo blockquote body br button canvas caption cite
code col colgroup data datalist dd del details dfn dialog div dl dt em embed fieldset figcaption
figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html i iframe img input ins kbd label
legend li link main map mark math menu meta meter nav noscript object ol optgroup option output p
picture pre progress q rp rt ruby s samp script search section select selectedcontent slot small
source span strong style sub summary sup svg table tbody td template textarea tfoot th thead time
title tr track u ul var video wbr
acronym applet basefont bgsound big blink center dir font frame frameset isindex keygen listing
marquee menuitem multicol nextid nobr noembed noframes param plaintext rb rtc spacer strike tt xmp
"""
_ELEMENTS = frozenset(_NAMES.split())
# Names, with the stray quotes and commas of careless pages; operators such as && do not match.
_ATTRIBUTE = re.compile(r"[\w:@\"',;][\w:@\"',;.-]*")
# Elements on lines of their own.
_BLOCK_NAMES = """
address article aside blockquote br dd div dl dt figure footer form h1 h2 h3 h4 h5 h6 header hr li
main nav ol p pre section table td th tr ul
"""
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_UNSEEN = frozenset(("script", "style", "head", "template"))


class _Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self._seen: list[str] = []
        # Open invisible elements with their text, which is visible if they are never closed.
        self._unseen: list[tuple[str, list[str]]] = []
        # Number of open elements by name.
        self._open: collections.Counter[str] = collections.Counter()

    def text(self) -> str:
        """Return the visible text of all input, with its lines and spaces."""
        return "".join([*self._seen, *("\n" + "".join(texts) for _, texts in self._unseen)])

    def handle_starttag(self, tag, attrs):
        if not _is_html(tag, attrs):
            self._keep(self.get_starttag_text() or "")
            return
        if tag in _UNSEEN:
            self._unseen.append((tag, []))
            self._open[tag] += 1
        if tag in _BLOCKS:
            self.handle_data("\n")

    def handle_endtag(self, tag):
        self._ended = tag
        closed = None
        while self._open[tag] and closed != tag:
            closed, _ = self._unseen.pop()
            self._open[closed] -= 1
        if tag in _BLOCKS:
            self.handle_data("\n")

    def parse_endtag(self, i):
        self._ended = None
        end = super().parse_endtag(i)
        if self._ended and self._ended not in _ELEMENTS:
            self._keep(self.rawdata[i:end])
        return end

    def parse_bogus_comment(self, i, report=1):
        end = super().parse_bogus_comment(i, report)
        self._keep(self.rawdata[i : max(end, i)])
        return end

    def handle_pi(self, data):
        self._keep(f"<?{data}>")

    def _keep(self, source: str) -> None:
        """Treat something that looks like a tag as text."""
        self.handle_data(html.unescape(source))

    def handle_data(self, data):
        (self._unseen[-1][1] if self._unseen else self._seen).append(data)


def _is_html(tag: str, attrs: list[tuple[str, str | None]]) -> bool:
    """Return whether a start tag is HTML, not code such as `List<String>` or `a<b && c>d`."""
    # One letter may be a variable too, followed by words: `a<b and c>d`.
    words = len(tag) == 1 and attrs and all(value is None for _, value in attrs)
    return tag in _ELEMENTS and not words and all(_ATTRIBUTE.fullmatch(name) for name, _ in attrs)


def text_of(source: str) -> str:
    """Return the text of an HTML fragment with single spaces; plain text is unchanged.

    Text that only looks like HTML ("if a < b", "#include <stdio.h>") is kept: a tag must have the
    name of an HTML element and well-formed attributes. The text of a <script> or <head> that is
    never closed comes last. A fragment that cannot be parsed is returned unchanged.
    """
    reader, end = _Reader(), source.rfind(">") + 1
    try:
        reader.feed(source[:end])  # the parser would search the rest for tags
        reader.close()
        reader.handle_data(reader.rawdata)  # the rest, which close() leaves in an open <script>
        reader.handle_data(html.unescape(source[end:]))
        text = reader.text()
    except AssertionError:  # raised by Python's parser for "<![foo"
        text = source
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)
