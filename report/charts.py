"""Chooses the charts of a page: which metrics are drawn together, under which title."""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

from common.errors import UserError
from common.metric_names import BASELINE, CONFUSION
from report.run_data import DECODED, RunData
from report.series import Series, accumulate, thin
from t5x.monitoring import loss_picture

# Points of all lines together, so that a page stays below 10 MB, and of one.
_MOST_POINTS, _MOST_A_LINE = 200_000, 2_000
_VALIDATION = ("training_eval/", "eval/")
_RECORDS = "data/records/"


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a chart: the index of its run, its label, and how it is drawn."""

    run: int
    label: str
    series: Series
    dashed: bool = False


@dataclasses.dataclass(frozen=True)
class Chart:
    """A title, a unit ('', '%' or 'bytes'), lines, and whether it is among the main charts."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    is_main: bool = True


# Title, unit, tags (drawn is the one with most points, else the first), and whether validation is
# drawn too.
_TOKENS = ("timing/tokens_per_second", "timing/target_tokens_per_second", "timing/seqs_per_second")
_CHARTS = (
    ("Loss, nats a token", "", loss_picture.TAGS, True),
    ("Accuracy", "%", ("accuracy",), True),
    ("Learning rate", "", ("learning_rate", "learning_rate/current"), False),
    ("Tokens per second", "", _TOKENS, False),
    ("MFU", "%", ("device/mfu",), False),
    ("Waiting for data", "%", ("data/wait_share",), False),
    ("Gradient norm", "", ("gradient_norm",), False),
    ("Steps per second", "", ("timing/steps_per_second",), False),
    ("Peak memory of a device", "bytes", ("device/peak_bytes",), False),
)


def charts_of(runs: Sequence[RunData]) -> list[Chart]:
    """Return the charts of runs drawn over each other, without those that have no points."""
    charts = [
        Chart(title, unit, tuple(_metric(runs, tags, validation)))
        for title, unit, tags, validation in _CHARTS
    ]
    charts[0] = dataclasses.replace(charts[0], lines=(*charts[0].lines, *_expected(runs)))
    charts.append(Chart("Records read", "", tuple(_records(runs))))
    drawn = {tag for _, _, tags, _ in _CHARTS for tag in tags}
    tags_of = [tags for run in runs for f, tags in run.series.items() if not _is_of_a_task(f)]
    rest = {tag for tags in tags_of for tag in tags if not tag.startswith(_RECORDS)} - drawn
    charts += [Chart(tag, "", tuple(_metric(runs, (tag,), True)), False) for tag in sorted(rest)]
    charts += _task_charts(runs)
    lines = sum(len(chart.lines) for chart in charts)
    most = min(_MOST_A_LINE, max(50, _MOST_POINTS // max(lines, 1)))
    thinned = lambda line: dataclasses.replace(line, series=thin(line.series, most))
    return [
        dataclasses.replace(chart, lines=tuple(map(thinned, chart.lines)))
        for chart in charts
        if any(len(line.series) for line in chart.lines)
    ]


def _is_of_a_task(folder: str) -> bool:
    """Return whether a folder holds a task's metrics of decoded text."""
    return DECODED in folder.split("/")


def _metric(runs: Sequence[RunData], names: tuple[str, ...], validation: bool) -> Iterator[Line]:
    for index, run in enumerate(runs):
        for folder in sorted(run.series, key=lambda name: (name != "train", name)):
            tags = run.series[folder]
            is_validation = folder.startswith(_VALIDATION)
            if _is_of_a_task(folder) or (is_validation and not validation):
                continue
            present = [tag for tag in names if tag in tags]
            if tag := max(present, key=lambda tag: len(tags[tag]), default=None):
                yield Line(index, _label(folder), tags[tag], dashed=is_validation)


def _label(folder: str) -> str:
    for prefix in _VALIDATION:
        if folder.startswith(prefix):
            return f"validation, {folder.removeprefix(prefix)}"
    return "training" if folder == "train" else folder


def _expected(runs: Sequence[RunData]) -> Iterator[Line]:
    for index, run in enumerate(runs):
        if losses := run.history.expected_loss:
            rows = [(step, loss, float("nan")) for step, loss in losses]
            yield Line(index, "expected", Series.from_rows(rows), dashed=True)


def _records(runs: Sequence[RunData]) -> Iterator[Line]:
    for index, run in enumerate(runs):
        starts = run.history.places_of_starts
        for tag, series in sorted(run.series.get("train", {}).items()):
            if tag.startswith(_RECORDS):
                yield Line(index, tag.removeprefix(_RECORDS), accumulate(series, starts))


def _task_charts(runs: Sequence[RunData]) -> list[Chart]:
    by_title: dict[str, list[Line]] = {}
    for index, run in enumerate(runs):
        for task, metrics in task_metrics(run).items():
            for metric, series in metrics.items():
                if metric.startswith(CONFUSION):  # a table shows the last
                    continue
                title = f"{task}: {metric.removeprefix(BASELINE)}"
                line = Line(index, metric, series, dashed=metric.startswith(BASELINE))
                by_title.setdefault(title, []).append(line)
    return [Chart(title, "", tuple(lines)) for title, lines in sorted(by_title.items())]


def task_metrics(run: RunData) -> dict[str, dict[str, Series]]:
    """Return the metrics of decoded text by task."""
    by_task: dict[str, dict[str, Series]] = {}
    for folder, tags in sorted(run.series.items()):
        if _is_of_a_task(folder):
            task = folder.removeprefix(DECODED).strip("/").removesuffix("/eval")
            for tag, series in tags.items():
                metric = tag.removeprefix("eval/").removeprefix(f"{task}/")
                by_task.setdefault(task or "inference", {}).setdefault(metric, series)
    return by_task


def draw_loss(runs: Sequence[RunData], path: pathlib.Path) -> None:
    """Write a PNG of training and validation loss, in nats a token; raise UserError without one."""
    loss = next((chart for chart in charts_of(runs) if chart.title.startswith("Loss")), None)
    if loss is None:
        names = ", ".join(run.path for run in runs) or "no run"
        raise UserError(
            names, why="has no loss to draw", to_set="name a MODEL_DIR that has trained"
        )
    alone = len(runs) == 1
    curves = (
        loss_picture.Curve(
            line.label if alone else f"{runs[line.run].name}, {line.label}",
            line.series.steps.tolist(),
            line.series.values.tolist(),
            line.dashed,
            None if alone else f"C{line.run}",
        )
        for line in loss.lines
    )
    loss_picture.draw(curves, runs[0].name if alone else "loss", path)
