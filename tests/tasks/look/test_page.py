"""The page holds everything, needs no network, and reads well in a browser."""

import re

import pytest

from common.tables import ok, warning
from fakes.browser import CHROMIUM, Browser
from tasks.look import page, table
from tasks.look.figures import Histogram, Look

FOUND = Look(
    task="my_task",
    split="train",
    corpus="my <corpus>",
    overview=None,
    files={"jsonl": 3},
    file_bytes=72_000,
    passed_over=[("/data/train_log.txt", "its name says that it is no data")],
    vocabulary="my.model, 64,000 ids",
    mixing="every epoch is a permutation of all records",
    sampled=1000,
    counts={
        "read": 1200,
        "skipped_empty": 10,
        "skipped_too_short": 2,
        "cut_inputs": 7,
        "text_bytes": 72_000,
        "pieces": 16_000,
        "unknown_pieces": 20,
        "replaced_characters": 0,
    },
    words=10_989,
    letters=70_000,
    by_bytes=False,
    scripts={"Latin": 0.98, "Cyrillic": 0.02},
    foreign=[],
    foreign_example="",
    characters=warning("NUL in 3 of 1,000 documents", "another file"),
    repetition=ok("nothing"),
    unknown_labels=[],
    unknown_characters=[("☃", 12), ("\u0301", 1)],
    unknown_example="“om de zăpadă ☃”",
    targets=None,
    histograms={"text": Histogram(3, 200, 256, ((128, 900), (256, 100)))},
    documents=[{"text": "primul <b> document\n" + "cuvânt " * 200}],
    lengths={"inputs": 512, "targets": 114},
    examples_made=2000,
    examples=[
        {
            "inputs": [(False, "Ana"), (True, "<0>"), (False, "mere")],
            "targets": [(True, "<0>"), (False, "are")],
        }
    ],
    corpus_tokens=None,
    row_tokens=568,
)


def test_the_text_has_every_figure():
    said = page.as_text(FOUND)
    figures = "".join(row.figure for row in table.rows(FOUND))
    for part in (
        *(
            "3 files: 3 jsonl, 72 KB; passed over: train_log.txt",
            "1,000 documents of 1,200 records",
        ),
        *("10 empty, 2 too short", "7 cut inputs", "1.46", "☃ U+2603 × 12, U+0301 × 1"),
        *("Latin 98.0%", "0.12% of 16,000 pieces", "“om de zăpadă ☃”"),
    ):
        assert part in figures, part
    for part in (
        *("my <corpus>, split train", "1,000 documents", "scripts         ok", "Latin 98.0%"),
        *("median 3 tokens, 95 % up to 200, longest 256", "up to     128   90.0%  " + "█" * 40),
        *("1. primul <b> document", "1. inputs: Ana <0> mere", "1. targets: <0> are"),
        *("1 of 2,000 examples", "every epoch is a permutation", "inputs 512, targets 114"),
    ):
        assert part in said, part
    assert max(map(len, said.splitlines())) < 420


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on PATH")
def test_the_page_in_a_browser(tmp_path):
    path = tmp_path / "look.html"
    path.write_text(page.as_html(FOUND))
    with Browser() as browser:
        for width, dark in ((1280, False), (390, True)):
            browser.open(path.as_uri(), width=width, dark=dark)
            said = re.sub(r"\s+", " ", browser.run("document.body.innerText"))
            for part in (
                *("my <corpus>", "☃ U+2603 × 12", "primul <b> document cuvânt", "90.0%"),
                *("Ana <0> mere", "1 of 2,000 examples", "1 of 1,000 documents"),
            ):
                assert part in said, part
            marks = "[...document.querySelectorAll('mark')].map((m) => m.innerText)"
            assert browser.run(marks) == ["<0>", "<0>"]
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
