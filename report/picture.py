"""The loss of runs as a picture, for model cards and READMEs."""

import pathlib
from collections.abc import Sequence

from report.charts import charts_of
from report.run_data import RunData
from t5x.monitoring import loss_picture


def draw(runs: Sequence[RunData], path: pathlib.Path) -> None:
    """Write a PNG of training and validation loss, nats a token; without, raise ValueError."""
    loss = next((chart for chart in charts_of(runs) if chart.title.startswith("Loss")), None)
    if loss is None:
        names = ", ".join(run.path for run in runs) or "no run"
        raise ValueError(f"There is no loss to draw in {names}; name a MODEL_DIR that has trained.")
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
