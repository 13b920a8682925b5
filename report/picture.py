"""The loss of runs as a picture, for model cards and READMEs."""

import pathlib
from collections.abc import Sequence

from report.charts import charts_of
from report.run_data import RunData


def draw(runs: Sequence[RunData], path: pathlib.Path) -> None:
    """Write a PNG of training and validation loss, nats a token; without, raise ValueError."""
    import matplotlib  # takes longer to import than a page to write

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    loss = next((chart for chart in charts_of(runs) if chart.title.startswith("Loss")), None)
    if loss is None:
        names = ", ".join(run.path for run in runs) or "no run"
        raise ValueError(f"There is no loss to draw in {names}; name a MODEL_DIR that has trained.")
    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    for line in loss.lines:
        axes.plot(
            line.series.steps,
            line.series.values,
            marker=("s" if line.dashed else "o") if len(line.series) <= 50 else "",
            linestyle="--" if line.dashed else "-",
            color=f"C{line.run}" if len(runs) > 1 else None,
            markersize=4,
            label=line.label if len(runs) == 1 else f"{runs[line.run].name}, {line.label}",
        )
    title = runs[0].name if len(runs) == 1 else "loss"
    axes.set(xlabel="step", ylabel="loss, nats a token", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
