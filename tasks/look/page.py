"""Renders a look at a corpus: as text for the terminal, or as one HTML page.

The page runs no scripts and requests nothing.
"""

import html
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from common import html_page, tables
from common.printable import printable
from tasks import vocabularies
from tasks.look import lines
from tasks.look.sample import Document, Histogram, Sample, Spans

SHOWN = 10  # documents, and examples
_SHARDS = 8  # shards of a run, as in `t5x.input_pipeline.stream`
_BAR = 40  # characters of the longest bar
_DOCUMENT, _EXAMPLE = 400, 700  # characters shown on the terminal


def facts(sample: Sample) -> list[tuple[str, str]]:
    """Return what the sample is of, as (name, text)."""
    rows = [
        ("corpus", f"{sample.corpus}, split {sample.split}"),
        ("sample", f"{len(sample.documents):,} documents"),
        ("mixing", sample.source.mixing(sample.split, _SHARDS)),
    ]
    if sample.task:
        vocabulary = sample.vocabulary
        name = f"{vocabularies.name_of(vocabulary)}, {vocabulary.vocab_size:,} ids"
        rows.append(("vocabulary", name))
    if sample.lengths:
        rows.append(("lengths", ", ".join(f"{k} {n:,}" for k, n in sample.lengths.items())))
    return rows


def shown_documents(sample: Sample) -> list[Document]:
    """Return documents that are spread over the sample."""
    return list(tables.spread(sample.documents, SHOWN))


def shown_examples(sample: Sample) -> list[dict[str, Spans]]:
    """Return examples that are spread over the sample, as texts."""
    return [sample.spans(example) for example in tables.spread(sample.examples, SHOWN)]


def render_text(sample: Sample) -> str:
    """Return the look as lines for a terminal."""
    rows = facts(sample)
    width = max(len(name) for name, _ in rows)
    text, room = [sample.name, ""], tables.terminal_width() - width - 2
    for name, value in rows:
        first, *rest = textwrap.wrap(printable(value), room, break_long_words=False) or [""]
        text += [f"{name:<{width}}  {first}", *(" " * (width + 2) + line for line in rest)]
    text += ["", tables.table(lines.table(sample))]
    for name, lengths in sample.histograms.items():
        text += ["", f"{name}: {_summary(lengths)}"]
        text += [f"  up to {most:>7,}  {share:6.1%}  {bar}" for most, share, bar in _bars(lengths)]
    documents, examples = shown_documents(sample), shown_examples(sample)
    text += ["", f"{len(documents)} documents of the sample:"]
    for number, document in enumerate(documents, 1):
        for name, value in document.items():
            title = f"{number}." if len(document) == 1 else f"{number}. {name}:"
            text += ["", _shortened(f"{title} {' '.join(value.split())}", _DOCUMENT)]
    if sample.task:
        text += ["", f"{len(examples)} of {len(sample.examples):,} examples of the sample:"]
    for number, example in enumerate(examples, 1):
        text.append("")
        for name, spans in example.items():
            value = " ".join(part for _, part in spans)
            text.append(_shortened(f"{number}. {name}: {value}", _EXAMPLE))
    return "\n".join(text)


def _summary(lengths: Histogram) -> str:
    return (
        f"median {lengths.median:,} tokens, 95 % up to {lengths.most_of:,}, "
        f"longest {lengths.longest:,}"
    )


def _bars(lengths: Histogram) -> Iterator[tuple[int, float, str]]:
    """Yield (upper limit, share of the documents, bar) of each bin."""
    total, most = sum(n for _, n in lengths.bins), max(n for _, n in lengths.bins)
    for limit, n in lengths.bins:
        yield limit, n / total, "█" * round(_BAR * n / most)


def _shortened(text: str, most: int) -> str:
    return printable(text if len(text) <= most else f"{text[:most]} …")


_STYLE = """
body { max-width: 68rem; overflow-wrap: anywhere; }
tr:last-child > * { border-bottom: 0; }
th, .checks td:nth-child(2), .bars td { white-space: nowrap; }
.bars td:last-child { width: 100%; vertical-align: middle; }
.bar { display: block; height: .9rem; background: var(--c0); border-radius: 2px; }
blockquote { margin: .4rem 0 1rem; padding: .1rem .8rem; border-left: 3px solid var(--line);
  white-space: pre-wrap; }
mark { background: color-mix(in srgb, var(--c1) 18%, transparent); color: inherit;
  border-radius: 3px; padding: 0 .2em; }
"""


def render_html(sample: Sample) -> str:
    """Return the checks as an HTML page, with whole documents and examples and marked spans."""
    title = f"{sample.name}, {sample.split}"
    documents, examples = shown_documents(sample), shown_examples(sample)
    body = [
        f"<header><h1>{html.escape(title)}</h1></header>",
        _section("", f"<table>{_rows(facts(sample))}</table>"),
        _section("", f'<table class="checks">{_rows(_judged(sample))}</table>'),
        *(_section(f"Length of {n}", _html_bars(x)) for n, x in sample.histograms.items()),
        _section(
            f"{len(examples)} of {len(sample.examples):,} examples",
            "".join(_quotes({n: _html_spans(s) for n, s in row.items()}) for row in examples),
        )
        if sample.task
        else "",
        _section(
            f"{len(documents)} of {len(sample.documents):,} documents",
            "".join(_quotes({n: html.escape(t) for n, t in row.items()}) for row in documents),
        ),
    ]
    return html_page.page(title, "\n".join(body), _STYLE)


def _judged(sample: Sample) -> list[tuple[str, str, str]]:
    """Return (check, verdict, figure and what to do) of each line."""
    return [
        (row.check, row.verdict, " → ".join(filter(None, (row.figure, row.to_set))))
        for row in lines.table(sample)
    ]


def _section(title: str, content: str) -> str:
    heading = f"<h2>{title}</h2>" if title else ""
    return f'<section class="part">{heading}<div class="scroll">{content}</div></section>'


def _rows(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows of a table whose first cell is a heading."""
    cells = lambda row: "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
    return "".join(f"<tr><th>{name}</th>{cells(row)}</tr>" for name, *row in rows)


def _html_bars(lengths: Histogram) -> str:
    rows = "".join(
        f'<tr><td>up to {limit:,}</td><td class="number">{share:.1%}</td>'
        f'<td><span class="bar" style="width:{2.5 * len(bar)}%"></span></td></tr>'
        for limit, share, bar in _bars(lengths)
    )
    return f'<p class="quiet">{_summary(lengths)}</p><table class="bars">{rows}</table>'


def _quotes(texts: Mapping[str, str]) -> str:
    """Return texts by feature, in HTML; a single feature has no title."""
    title = lambda name: f"<b>{name}</b>" if len(texts) > 1 else ""
    return "".join(f"{title(name)}<blockquote>{text}</blockquote>" for name, text in texts.items())


def _html_spans(spans: Spans) -> str:
    """Return the text with its sentinels marked."""
    return " ".join(
        f"<mark>{html.escape(text)}</mark>" if is_mark else html.escape(text)
        for is_mark, text in spans
    )
