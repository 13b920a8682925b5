"""The page holds everything, needs no network, and reads well in a browser."""

import dataclasses
import re

import pytest
import seqio

from fakes.browser import CHROMIUM, Browser
from tasks import romanian  # noqa: F401  registers ro_mini
from tasks.look import figures, page, table


@pytest.fixture(scope="module")
def found():
    task = seqio.TaskRegistry.get("ro_mini_span_corruption")
    histogram = figures.Histogram(3, 200, 256, ((128, 900), (256, 100)))
    seen = figures.look(task, "train", 30)
    documents = [{"text": "primul <b> document\n" + "cuvânt " * 200}, *seen.documents[1:]]
    settings = {"corpus": "my <corpus>", "documents": documents, "histograms": {"text": histogram}}
    return dataclasses.replace(seen, **settings)


def shown(spans):
    return " ".join(text for _, text in spans)


def test_the_text_has_every_figure(found):
    said = page.as_text(found)
    assert max(map(len, said.splitlines())) < 720
    for row in table.rows(found):
        assert {*f"{row.check} {row.verdict} {row.figure}".split()} <= {*said.split()}
    flat = " ".join(said.split())
    for number, document in enumerate(found.documents, 1):
        assert f"{number}. {' '.join(document['text'].split())}"[:400] in flat
    for number, example in enumerate(found.examples, 1):
        for name, spans in example.items():
            assert f"{number}. {name}: {shown(spans)}"[:700] in flat
    for part in (
        *("my <corpus>, split train", "inputs 512, targets 114", found.mixing, found.vocabulary),
        *("median 3 tokens, 95 % up to 200, longest 256", "up to 128 90.0% " + "█" * 40),
    ):
        assert part in flat, part


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on PATH")
def test_the_page_in_a_browser(found, tmp_path):
    path = tmp_path / "look.html"
    path.write_text(page.as_html(found))
    with Browser() as browser:
        for width, dark in ((1280, False), (390, True)):
            browser.open(path.as_uri(), width=width, dark=dark)
            said = re.sub(r"\s+", " ", browser.run("document.body.innerText"))
            for part in (
                *("my <corpus>", "primul <b> document cuvânt", "90.0%", "10 of 30 documents"),
                *map(shown, found.examples[0].values()),
            ):
                assert part in said, part
            marks = "[...document.querySelectorAll('mark')].map((m) => m.innerText)"
            spans = [each for row in found.examples for side in row.values() for each in side]
            assert browser.run(marks) == [text for is_mark, text in spans if is_mark]
            bars = "[...document.querySelectorAll('.bar')].map((b) => b.offsetWidth)"
            first, second = browser.run(bars)
            assert first == pytest.approx(9 * second, rel=0.2)
            assert browser.run("document.documentElement.scrollWidth") <= width
            lines = "(td) => { const r = new Range(); r.selectNodeContents(td); "
            lines += "return r.getClientRects().length; }"
            cells = ".bars td:nth-child(-n + 2), .checks td:nth-child(2)"
            assert browser.run(f"[...document.querySelectorAll('{cells}')].length") > 4
            assert browser.run(
                f"[...document.querySelectorAll('{cells}')].map({lines}).every((n) => n == 1)"
            )
        assert browser.complaints == []
        assert {url.split(":")[0] for url in browser.requests} <= {"file", "about"}
