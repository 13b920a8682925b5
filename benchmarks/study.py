"""What finished studies share: a file of results, steps for the same loss, and a picture.

with study.picture(path, columns=2, y_label="nats a token", legend=1) as axes:
    axes[0].plot(steps, losses, label="adafactor")
    study.set_ticks(axes[0], BUDGETS)
"""

import contextlib
import itertools
import json
import math
import pathlib
import statistics
from collections.abc import Iterator, Sequence
from typing import Any


def read(path: pathlib.Path) -> list[dict]:
    """Return the lines of a file of results, which may be missing."""
    return list(map(json.loads, path.read_text().splitlines() if path.exists() else []))


def add(path: pathlib.Path, result: dict) -> None:
    """Append a result to a file of results."""
    with path.open("a") as file:
        file.write(json.dumps(result) + "\n")


def mean(values: Sequence[float]) -> str:
    """Return the mean, and the sample deviation of several values, for a table."""
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}"


def steps_needed(loss: float, losses: dict[int, float]) -> float | None:
    """Return the steps for a loss, on straight lines in log(steps).

    Args:
      loss: to reach.
      losses: at the end of each budget, by its steps.

    Returns:
      Infinity for a loss below that of all budgets, None for one above, or without budgets.
    """
    points = sorted(losses.items())
    for (low, high_loss), (high, low_loss) in itertools.pairwise(points):
        if low_loss <= loss <= high_loss:
            part = (high_loss - loss) / (high_loss - low_loss)
            return math.exp(math.log(low) + part * math.log(high / low))
    return math.inf if points and loss < min(losses.values()) else None


@contextlib.contextmanager
def picture(path: pathlib.Path, columns: int, y_label: str, legend: int) -> Iterator[Sequence[Any]]:
    """Save a picture of `columns` axes in a row, whose x is logarithmic.

    Args:
      path: of the picture.
      columns: the number of axes; they share their y axis.
      y_label: of the first axis.
      legend: the axis that has the legend.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, columns, figsize=(9, 3.5), squeeze=False, sharey=True)
    for axis in axes[0]:
        axis.set_xscale("log")
    yield axes[0]
    axes[0][0].set_ylabel(y_label)
    axes[0][legend].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=100, metadata={"Software": None})


def set_ticks(axis: Any, steps: Sequence[int]) -> None:
    """Mark these steps on the x axis, and no others."""
    axis.set_xticks(steps, [f"{n:,}" for n in steps])
    axis.minorticks_off()
