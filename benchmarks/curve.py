"""The loss of a run as a picture, training and validation, in nats a token.

python benchmarks/curve.py runs/ro_t5x_tiny docs/quickstart.png
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from convert.curve import loss_curve


def draw(run: Path, out: Path) -> None:
    """Writes the picture of the run in MODEL_DIR `run`."""
    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    for name, points in sorted(loss_curve(run).items()):
        label = "training" if name == "train" else f"validation, {Path(name).name}"
        axes.plot(*zip(*points, strict=True), marker="o", label=label)
    axes.set(xlabel="step", ylabel="loss, nats a token", title=run.name)
    axes.grid(alpha=0.3)
    axes.legend()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
