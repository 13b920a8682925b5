"""Makes the page of runs: one HTML file with its style, script and data, which needs no network.

`content` returns the data as plain JSON; the page's script only draws it.
"""

import itertools
import json
import math
import pathlib
from collections.abc import Sequence
from typing import Any

from common import html_page
from common.metric_names import BASELINE, CONFUSION
from common.tables import spread
from report.charts import Chart, charts_of, task_metrics
from report.history import RUNNING, changes
from report.run_data import RunData
from report.series import Series, accumulate

_PARTS = pathlib.Path(__file__).parent / "parts"
_SCRIPTS = ("format.js", "chart.js", "timeline.js", "sections.js", "page.js")
_NO_CLASS = "(no class)"  # a classifier's name for any other prediction
_MOST_SPANS, _MOST_INFILLS, _MOST_ROWS = 2_000, 40, 200
_KEPT_SPANS = (RUNNING, "stall", "failed", "interrupted")


def html(runs: Sequence[RunData], now: float, reload: float | None = None) -> str:
    """Return the page of these runs, see `content`."""
    data = json.dumps(content(runs, now, reload), ensure_ascii=False, separators=(",", ":"))
    part = lambda name: (_PARTS / name).read_text("utf-8")
    body = html_page.fill(
        part("page.html"),
        script="\n".join(part(name) for name in _SCRIPTS),
        data=data.replace("<", "\\u003c"),  # inside a script element only `<` can end it
    )
    return html_page.page("Training report", body, part("style.css"), is_complete=False)


def content(runs: Sequence[RunData], now: float, reload: float | None = None) -> dict[str, Any]:
    """Return a page's data at `now` (since 1970); the page reloads after `reload` seconds."""
    begins = [_begin(run) for run in runs]
    names = [run.name for run in runs]
    names = [n if names.count(n) == 1 else run.path for n, run in zip(names, runs, strict=True)]
    described = zip(runs, names, begins, strict=True)
    return {
        "made": round(now),
        "reload": reload,
        "runs": [_run(run, name, begin, now) for run, name, begin in described],
        "charts": [_chart(chart, begins) for chart in charts_of(runs)],
    }


def _begin(run: RunData) -> float:
    """Return when a run began, seconds since 1970."""
    times = [s.times[0] for tags in run.series.values() for s in tags.values()]
    times += [span.time for span in run.history.spans[:1]]  # what took long began before its event
    return min((t for t in times if t > 0), default=0.0)


def _run(run: RunData, name: str, begin: float, now: float) -> dict[str, Any]:
    history, starts = run.history, run.history.starts
    last = starts[-1] if starts else {}
    rate = run.series.get("train", {}).get("timing/steps_per_second")
    configs = history.configs
    return {
        "name": name,
        "path": run.path,
        "begin": round(begin),
        "state": history.state(now),
        "seen": round(history.last_seen),
        "step": run.last_step,
        "total": last.get("total_steps"),
        "rate": plain(rate.last_value) if rate else None,
        "device": f"{last['devices']} × {last.get('device', '?')}" if "devices" in last else "",
        "restarts": sum(not start.get("begun_from") for start in starts[1:]),
        "spans": _spans(run, begin),
        "config": run.config or (configs[-1][2] if configs else ""),
        "changes": [
            {"step": step, "time": round(time), "rows": changes(before, after)}
            for (_, _, before), (step, time, after) in itertools.pairwise(configs)
        ],
        "corpora": _corpora(run),
        "infills": {key: spread(rows, _MOST_INFILLS) for key, rows in history.infills.items()},
        "tables": _tables(run),
        "notes": run.notes,
    }


def _spans(run: RunData, begin: float) -> list[list[Any]]:
    """Return [kind, begin, seconds, step, detail] of spans; if there are many, not the shortest."""
    spans = run.history.spans
    if len(spans) > _MOST_SPANS:
        by_importance = sorted(spans, key=lambda s: (s.kind in _KEPT_SPANS, s.seconds))
        spans = sorted(by_importance[-_MOST_SPANS:], key=lambda s: s.time)
    after = lambda time: round(time - begin, 1)
    return [[s.kind, after(s.time), round(s.seconds, 2), s.step, s.detail] for s in spans]


def _corpora(run: RunData) -> list[dict[str, Any]]:
    """Return records, epochs and skipped records by phase and corpus, over all starts.

    A phase ends at its last logged step; one phase has no name.
    """
    starts = run.history.phases
    edges = [-1, *(first for first in starts[1:] if first < run.last_step), run.last_step]
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    for tag, series in run.series.get("train", {}).items():
        if tag.startswith("data/") and tag.count("/") >= 2:
            _, name, corpus = tag.split("/", 2)
            total = accumulate(series, run.history.places_of_starts)
            at = [total.at(total.steps <= edge).last_value or 0.0 for edge in edges]
            for index, (before, after) in enumerate(itertools.pairwise(at)):
                value = plain(float(f"{after - before:.3g}") if name == "epoch" else after - before)
                if value or name in ("records", "epoch"):
                    phase = {"phase": _phase(edges, index)} if len(edges) > 2 else {}
                    row = rows.setdefault((index, corpus), {**phase, "corpus": corpus})
                    row[name] = value
    return [rows[place] for place in sorted(rows)]


def _phase(edges: Sequence[int], index: int) -> str:
    return f"steps {max(edges[index], 0):,} to {edges[index + 1]:,}"


def _tables(run: RunData) -> list[dict[str, Any]]:
    """Return a table for each task: a row for each step, a column for each metric, a baseline.

    Classifiers have a second one, their last confusion matrix.
    """
    tables = []
    for task, metrics in task_metrics(run).items():
        names = sorted(name for name in metrics if not name.startswith((BASELINE, CONFUSION)))
        steps = sorted({int(step) for series in metrics.values() for step in series.steps})
        at = {n: dict(zip(s.steps.tolist(), s.values, strict=True)) for n, s in metrics.items()}
        rows: list[Any] = [[step, *(plain(at[name].get(step)) for name in names)] for step in steps]
        rows = [*spread(rows, _MOST_ROWS)]
        last = {name: plain(series.last_value) for name, series in metrics.items()}
        if any(name.startswith(BASELINE) for name in metrics):
            rows.append(["baseline", *(last.get(f"{BASELINE}{name}") for name in names)])
        tables.append({"task": task, "columns": ["step", *names], "rows": rows})
        classes = [name.removeprefix("f1/") for name in names if name.startswith("f1/")]
        matrix = [
            [name, *(last.get(f"{CONFUSION}{name}/{text}") for text in (*classes, _NO_CLASS))]
            for name in classes
        ]
        if any(name.startswith(CONFUSION) for name in metrics):
            columns = ["class \\ predicted", *classes, _NO_CLASS]
            title = f"{task}, examples at step {steps[-1]:,}"
            tables.append({"task": title, "columns": columns, "rows": matrix})
    return tables


def _chart(chart: Chart, begins: Sequence[float]) -> dict[str, Any]:
    lines = [
        {"run": line.run, "label": line.label, "dashed": line.dashed}
        | _points(line.series, begins[line.run])
        for line in chart.lines
    ]
    return {"title": chart.title, "unit": chart.unit, "main": chart.is_main, "lines": lines}


def _points(series: Series, begin: float) -> dict[str, list]:
    seconds = [round(t - begin) if t > 0 else None for t in series.times.tolist()]
    return {
        "steps": series.steps.tolist(),
        "values": [plain(value) for value in series.values.tolist()],
        "seconds": [] if None in seconds else seconds,
    }


def plain(value: float | None) -> float | None:
    """Return a number with six digits; None for NaN and infinity, which JSON lacks."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")
