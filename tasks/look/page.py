"""A look at a task as text for the terminal, and as one HTML page without scripts or requests."""

import html
import textwrap
from collections.abc import Iterator, Mapping

from common import tables
from tasks.look import table
from tasks.look.figures import Histogram, Look, Spans

_BAR = 40  # characters of the longest bar
_DOCUMENT, _EXAMPLE = 400, 700  # characters shown on the terminal


def facts(found: Look) -> list[tuple[str, str]]:
    """Return what the sample is of, as (name, text)."""
    rows = [
        ("corpus", f"{found.corpus}, split {found.split}"),
        ("sample", f"{found.sampled:,} documents"),
        ("mixing", found.mixing),
        ("vocabulary", found.vocabulary),
    ]
    if found.lengths:
        rows.append(("lengths", ", ".join(f"{k} {n:,}" for k, n in found.lengths.items())))
    return rows


def as_text(found: Look) -> str:
    """Return the look as lines for a terminal."""
    named = facts(found)
    width = max(len(name) for name, _ in named)
    lines = [found.task, ""]
    for name, value in named:
        first, *rest = textwrap.wrap(value, 100 - width - 2, break_long_words=False) or [""]
        lines += [f"{name:<{width}}  {first}", *(" " * (width + 2) + line for line in rest)]
    lines += ["", tables.table(table.rows(found))]
    for name, one in found.histograms.items():
        lines += ["", f"{name}: {_summary(one)}"]
        lines += [f"  up to {limit:>7,}  {share:6.1%}  {bar}" for limit, share, bar in _bars(one)]
    lines += ["", f"{len(found.documents)} documents of the sample:"]
    for number, document in enumerate(found.documents, 1):
        for name, text in document.items():
            title = f"{number}." if len(document) == 1 else f"{number}. {name}:"
            lines += ["", _short(f"{title} {' '.join(text.split())}", _DOCUMENT)]
    lines += ["", f"{len(found.examples)} of {found.examples_made:,} examples of the sample:"]
    for number, example in enumerate(found.examples, 1):
        lines.append("")
        for name, spans in example.items():
            text = " ".join(text for _, text in spans)
            lines.append(_short(f"{number}. {name}: {text}", _EXAMPLE))
    return "\n".join(lines)


def _summary(one: Histogram) -> str:
    return f"median {one.median:,} tokens, 95 % up to {one.most_of:,}, longest {one.longest:,}"


def _bars(one: Histogram) -> Iterator[tuple[int, float, str]]:
    """Yield (upper limit, share of the documents, bar) of each bin."""
    total, most = sum(n for _, n in one.bins), max(n for _, n in one.bins)
    for limit, n in one.bins:
        yield limit, n / total, "█" * round(_BAR * n / most)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} …"


_PAGE = """<!doctype html>
<html lang="en" data-ready="true">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.4rem; }}
h2 {{ font-size: 1.2rem; }}
th {{ text-align: left; font-weight: 600; padding-right: 1rem; vertical-align: top;
  white-space: nowrap; }}
table.checks td {{ vertical-align: top; padding-right: 1rem; }}
table.checks td:nth-child(2), table.bars td {{ white-space: nowrap; }}
table.bars td:nth-child(2) {{ text-align: right; padding: 0 1rem; }}
table.bars td:nth-child(3) {{ width: 100%; }}
.bar {{ display: block; height: .9rem; background: #3b7dd8; border-radius: 2px; }}
blockquote {{ margin: .5rem 0 1rem; padding: .2rem 1rem; border-left: 3px solid #8888;
  white-space: pre-wrap; }}
mark {{ background: #ffd75e; color: #000; border-radius: 3px; padding: 0 .2em; }}
</style>
<h1>{title}</h1>
<table>{facts}</table>
<table class="checks">{checks}</table>
{histograms}
<h2>{examples_shown} of {examples_made} examples</h2>
{examples}
<h2>{documents_shown} of {sampled} documents</h2>
{documents}
</html>
"""


def as_html(found: Look) -> str:
    """Return the look as a page: all documents and examples in full, spans marked."""
    line = lambda *cells: "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
    fact = lambda name, *cells: f"<tr><th>{name}</th>{line(*cells)}</tr>"
    judged = [
        (row.check, row.verdict, " → ".join(filter(None, (row.figure, row.to_set))))
        for row in table.rows(found)
    ]
    return _PAGE.format(
        title=html.escape(f"{found.task}, {found.split}"),
        facts="".join(fact(*row) for row in facts(found)),
        checks="".join(fact(*row) for row in judged),
        histograms="".join(_html_bars(*row) for row in found.histograms.items()),
        examples_shown=len(found.examples),
        examples_made=f"{found.examples_made:,}",
        examples="".join(map(_html_example, found.examples)),
        documents_shown=len(found.documents),
        sampled=f"{found.sampled:,}",
        documents="".join(map(_html_document, found.documents)),
    )


def _html_bars(name: str, one: Histogram) -> str:
    rows = "".join(
        f"<tr><td>up to {limit:,}</td><td>{share:.1%}</td>"
        f'<td><span class="bar" style="width:{2.5 * len(bar)}%"></span></td></tr>'
        for limit, share, bar in _bars(one)
    )
    return f'<h2>Length of {name}</h2><p>{_summary(one)}</p><table class="bars">{rows}</table>'


def _html_document(document: Mapping[str, str]) -> str:
    titles = len(document) > 1
    return "".join(
        (f"<b>{name}</b>" if titles else "") + f"<blockquote>{html.escape(text)}</blockquote>"
        for name, text in document.items()
    )


def _html_example(example: Mapping[str, Spans]) -> str:
    return "".join(
        f"<b>{name}</b><blockquote>{_html_spans(spans)}</blockquote>"
        for name, spans in example.items()
    )


def _html_spans(spans: Spans) -> str:
    """Return the text with its sentinels marked."""
    return " ".join(
        f"<mark>{html.escape(text)}</mark>" if is_mark else html.escape(text)
        for is_mark, text in spans
    )
