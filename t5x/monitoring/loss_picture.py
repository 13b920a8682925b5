"""Loss curves as a picture, for model cards and READMEs."""

import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# The losses of a run in nats a token, the best first; upstream's runs lack the first.
TAGS = (
    "unnormalized_loss_per_target_token",
    "loss_per_nonpadding_target_token",
    "cross_ent_loss_per_all_target_tokens",
    "loss",
)


class Curve(NamedTuple):
    """A labelled curve: the loss in nats a token by step; `color` is one of matplotlib's."""

    label: str
    steps: Sequence[int]
    losses: Sequence[float]
    dashed: bool = False
    color: str | None = None


def draw(curves: Iterable[Curve], title: str, path: pathlib.Path) -> None:
    """Write a PNG of 840 × 420 pixels to `path`, whose folder is made if it is missing."""
    import matplotlib  # takes longer to import than most commands need to end

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 2.5), layout="constrained")
    for curve in curves:
        axes.plot(
            curve.steps,
            curve.losses,
            marker=("s" if curve.dashed else "o") if len(curve.steps) <= 50 else "",
            linestyle="--" if curve.dashed else "-",
            color=curve.color,
            markersize=4,
            label=curve.label,
        )
    axes.set(xlabel="step", ylabel="loss, nats a token", title=title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=168)
    plt.close(figure)
