"""Reads a run's loss curve and metrics from its files, without TensorFlow.

    python -m convert.run.loss_curve runs/ro_t5x_tiny  # 8.12 at step 100, 5.90 at step 1,000: …

    curves = loss_curve(Path("runs/ro_t5x_tiny"))      # {"train": [(100, 5.9), …], …}
    evaluations(Path("runs/ro_diacritics_tiny"))       # {"ro_mini_diacritics": (2000, {"f1": 0.8})}

The command prints the first and the last loss of each validation split, in nats a token.
"""

import sys
from pathlib import Path

from common import arguments
from common.errors import UserError, guarded
from common.small_files import parse_json
from t5x.monitoring import loss_picture
from t5x.monitoring.event_files import read_events

# The folder and the files in which seqio keeps the metrics of decoded text by task.
_DECODED, _METRICS = "inference_eval", "-metrics.jsonl"
# The names with which figures of a pretrained run begin there: of `python -m evaluation`, and of
# models that `launch/finetune.sh` has made of it.
OF_PRETRAINED = ("evaluation_", "finetuned_")


def event_files(run: Path) -> list[Path]:
    """Return all TensorBoard files below a run's folder (or an epath), outside checkpoints."""
    paths = []
    for path in sorted(run.iterdir()):
        if path.name.startswith("events.out.tfevents."):
            paths.append(path)
        # Where an object marks a folder, a client may list the folder among its own entries.
        elif path != run and not path.name.startswith("checkpoint_") and path.is_dir():
            paths += event_files(path)
    return paths


def loss_curve(run: Path, up_to: int | None = None) -> dict[str, list[tuple[int, float]]]:
    """Return the points (step, loss) up to a step, by the folder below `run` that logged them."""
    curves: dict[str, dict[int, float]] = {}
    for path in event_files(run):
        scalars = read_events(path.read_bytes()).scalars
        tags = [tag for tag in loss_picture.TAGS if tag in scalars]
        tag = max(tags, key=lambda tag: len(scalars[tag].steps), default=None)
        if tag:
            curve = zip(scalars[tag].steps, scalars[tag].values, strict=True)
            curves.setdefault(str(path.parent.relative_to(run)), {}).update(curve)
    return {
        name: sorted(
            (step, loss) for step, loss in points.items() if up_to is None or step <= up_to
        )
        for name, points in curves.items()
    }


def metrics_file(run: Path, task: str) -> Path:
    """Return seqio's file of a task's metrics below the folder of a run."""
    return run / _DECODED / f"{task}{_METRICS}"


def evaluations(run: Path, up_to: int | None = None) -> dict[str, tuple[int, dict[str, float]]]:
    """Return the last step and metrics of decoded text by task; `run` may be an epath."""
    folder = run / _DECODED
    last: dict[str, tuple[int, dict[str, float]]] = {}
    for path in sorted(folder.glob(f"*{_METRICS}")) if folder.is_dir() else []:
        for line in path.read_bytes().splitlines():
            try:
                values = parse_json(line)
                step = int(values.pop("step"))
            except (ValueError, LookupError, TypeError, OverflowError):  # cut by a crash
                continue
            numbers = {k: v for k, v in values.items() if isinstance(v, int | float)}
            numbers = {k: v for k, v in numbers.items() if abs(v) <= sys.float_info.max}
            if numbers and (up_to is None or step <= up_to):
                task, result = path.name.removesuffix(_METRICS), (step, numbers)
                # Lines are in the order of evaluations, and the newer one of a step counts.
                last[task] = max(result, last.get(task, result), key=lambda entry: entry[0])
    return last


def was_fine_tuned(run: Path) -> bool:
    """Return whether the run decoded examples of its own task; `run` may be an epath."""
    folder = run / _DECODED
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return not all(name.startswith(OF_PRETRAINED) for name in names)


def draw(curves: dict[str, list[tuple[int, float]]], title: str, path: Path) -> None:
    """Write a PNG of the curves; at least one has points."""
    lines = [
        loss_picture.Curve(name, [step for step, _ in points], [loss for _, loss in points])
        for name, points in curves.items()
        if points
    ]
    loss_picture.draw(lines, title, path)


@guarded
def main(argv: list[str]) -> None:
    """Print the first and last loss, in nats a token, of each validation split of the run."""
    parser = arguments.parser("python -m convert.run.loss_curve", __doc__)
    parser.add_argument("run", type=Path, help="a run's MODEL_DIR")
    run = parser.parse_args(argv).run
    if not run.is_dir():
        raise UserError(str(run), why="is not a folder", to_set="name the MODEL_DIR of a run")
    for name, points in loss_curve(run).items():
        if name.startswith("training_eval/") and points:
            (first, before), (last, after) = points[0], points[-1]
            change = f"{before:.2f} at step {first:,}, {after:.2f} at step {last:,}"
            print(f"  {change}: {before - after:.2f} less")


if __name__ == "__main__":
    main(sys.argv[1:])
