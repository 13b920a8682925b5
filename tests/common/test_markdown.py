"""Whatever a text holds, Markdown shows it and no more, as an independent renderer tells."""

import random

import pytest
from markdown_it import MarkdownIt

from common import markdown

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
STRANGE = [
    "<script>alert(1)</script>",
    "[link](javascript:alert(1))",
    "![picture](x.png) **bold** _lean_ __init__ ~~gone~~ `code`",
    "a | b | c",
    "name\n# heading\n\n```\ncode",
    "<javascript:alert(1)> <b@c.de> &lt; &#60;",
    *(
        "- list",
        "+ list",
        "1. list",
        "12) list",
        "3.",
        "> quote",
        "# heading",
        "heading\n===",
        "---",
    ),
    "\\`x\\` trailing \\",
    "ro_mini_diacritics, 3.5 % (a-b)",
]


def tokens_of(text: str):
    tokens = []
    for token in RENDERER.parse(text):
        tokens += [token, *(token.children or [])]
    return tokens


@pytest.mark.parametrize("frame", ["# {}\n", "- {} → x\n", "{}\n", "| a |\n|---|\n| {} |\n"])
@pytest.mark.parametrize("text", STRANGE)
def test_a_text_is_shown_as_it_is(text, frame):
    usual = [token.type for token in tokens_of(frame.format("text"))]
    tokens = tokens_of(frame.format(markdown.plain(text)))
    kinds = [token.type for token in tokens if token.type != "text_special"]
    merged = [kind for i, kind in enumerate(kinds) if kind != "text" or kinds[i - 1] != "text"]
    assert merged == usual
    content = "".join(t.content for t in tokens if t.type in ("text", "text_special"))
    assert " ".join(text.split()) in content


def test_any_text_is_one_line_without_marks_that_mislead():
    rng = random.Random(0)
    for _ in range(500):
        text = "".join(chr(rng.choice([rng.randrange(0x250), 0x202E, 0x200C])) for _ in range(30))
        line = markdown.plain(text)
        assert all(c.isprintable() or c == "\u200c" for c in line)
        kinds = {token.type for token in tokens_of(f"# {line}")}
        assert kinds <= {"heading_open", "heading_close", "inline", "text", "text_special"}, text


@pytest.mark.parametrize("code", ["```", "a\n```\n# b", "````\n```python", "~~~", "", "x = 1"])
def test_no_code_leaves_its_fence(code):
    tokens = RENDERER.parse(f"{markdown.fenced(code, 'python')}\n\n## Next\n")
    assert [token.type for token in tokens][:2] == ["fence", "heading_open"]
    assert tokens[0].content == f"{code}\n"


def test_a_table_has_its_rows_alone():
    text = markdown.table(["task", "loss"], [("a|b", "1"), ("c\n| d | e |", "2")])
    types = [token.type for token in RENDERER.parse(text)]
    assert types.count("tr_open") == 3
    assert types.count("td_open") == 4
