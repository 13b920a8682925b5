"""The page holds everything, needs no network, and reads well in a browser."""

import dataclasses
import re

import pytest
import seqio

from fakes.browser import CHROMIUM, Browser
from tasks.look import lines, page, sample
from tasks.romanian import RO_MINI


@pytest.fixture(scope="module")
def found():
    task = seqio.TaskRegistry.get("ro_mini_span_corruption")
    seen = sample.draw(task, "train", 30)
    documents = [{"text": "primul <b> document\n" + "cuvânt " * 200}, *seen.documents[1:]]
    ids = {"text": [[5] * n for n in [3] * 90 + [7] * 10]}
    return dataclasses.replace(seen, name="my <corpus>", documents=documents, ids=ids)


def shown(spans):
    return " ".join(text for _, text in spans)


def test_the_text_has_every_figure(found):
    said = page.render_text(found)
    assert max(map(len, said.splitlines())) < 720
    for row in lines.table(found):
        assert {*f"{row.check} {row.verdict} {row.figure}".split()} <= {*said.split()}
    flat = " ".join(said.split())
    for number, document in enumerate(page.shown_documents(found), 1):
        assert f"{number}. {' '.join(document['text'].split())}"[:400] in flat
    for number, example in enumerate(page.shown_examples(found), 1):
        for name, spans in example.items():
            assert f"{number}. {name}: {shown(spans)}"[:700] in flat
    for part in (
        *("my <corpus>", f"{found.corpus}, split train", "inputs 512, targets 114"),
        *("every epoch is a permutation of all records", f"{found.vocabulary.vocab_size:,} ids"),
        *("median 3 tokens, 95 % up to 7, longest 7", "up to 4 90.0% " + "█" * 40),
    ):
        assert part in flat, part


def test_a_page_says_nothing_of_a_task_where_there_is_none():
    texts = sample.draw_texts(RO_MINI, "train", 20)
    for said in (page.render_text(texts), page.render_html(texts)):
        assert "20 documents" in said
        assert "examples" not in said


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on PATH")
def test_the_page_in_a_browser(found, tmp_path):
    path = tmp_path / "look.html"
    path.write_text(page.render_html(found))
    with Browser() as browser:
        for width, dark in ((1280, False), (390, True)):
            browser.open(path.as_uri(), width=width, dark=dark)
            said = re.sub(r"\s+", " ", browser.run("document.body.innerText"))
            for part in (
                *("my <corpus>", "primul <b> document cuvânt", "90.0%", "10 of 30 documents"),
                *map(shown, page.shown_examples(found)[0].values()),
            ):
                assert part in said, part
            marks = "[...document.querySelectorAll('mark')].map((m) => m.innerText)"
            spans = [
                each for row in page.shown_examples(found) for side in row.values() for each in side
            ]
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
