"""A run's loss curve, read from its TensorBoard files without TensorFlow.

curves = loss_curve(Path("runs/ro_t5x_tiny"))      # {"train": [(100, 5.9), …], …}
python -m convert.run.loss_curve runs/ro_t5x_tiny  # 8.12 at step 100, 5.90 at step 1,000: …
"""

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

_TAGS = ("loss", "cross_ent_loss", "loss_per_nonpadding_target_token")


def event_files(run: Path) -> list[Path]:
    """All TensorBoard files below a run's folder (or an epath), checkpoints left aside."""
    found = []
    for path in sorted(run.iterdir()):
        if path.name.startswith("events.out.tfevents."):
            found.append(path)
        elif not path.name.startswith("checkpoint_") and path.is_dir():
            found += event_files(path)
    return found


def _records(path: Path) -> Iterator[bytes]:
    """The records of a TFRecord file: length (8 bytes), checksum (4), data, checksum (4)."""
    with path.open("rb") as file:
        while len(head := file.read(12)) == 12:
            (length,) = struct.unpack("<Q", head[:8])
            data = file.read(length)
            if len(data) < length or len(file.read(4)) < 4:
                return  # the run is still writing, or was cut
            yield data


def _value(value) -> float | None:
    if value.HasField("simple_value"):
        return value.simple_value
    tensor = value.tensor
    if tensor.float_val:
        return tensor.float_val[0]
    return (
        struct.unpack("<f", tensor.tensor_content)[0] if len(tensor.tensor_content) == 4 else None
    )


def _points(path: Path) -> dict[str, dict[int, float]]:
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto import event_pb2

    points: dict[str, dict[int, float]] = {}
    for data in _records(path):
        try:
            event = event_pb2.Event.FromString(data)
        except DecodeError:
            break
        for value in event.summary.value:
            if value.tag in _TAGS and (number := _value(value)) is not None:
                points.setdefault(value.tag, {})[event.step] = number
    return points


def loss_curve(run: Path, up_to: int | None = None) -> dict[str, list[tuple[int, float]]]:
    """(step, loss) by the folder below `run` that logged it, up to a step."""
    curves: dict[str, dict[int, float]] = {}
    for path in event_files(run):
        points = _points(path)
        tag = next((tag for tag in reversed(_TAGS) if tag in points), None)
        if tag:
            curves.setdefault(str(path.parent.relative_to(run)), {}).update(points[tag])
    return {
        name: sorted((step, loss) for step, loss in found.items() if up_to is None or step <= up_to)
        for name, found in curves.items()
    }


def thinned(points: list[tuple[int, float]], most: int = 12) -> list[tuple[int, float]]:
    """At most `most` points, the first and the last among them."""
    if len(points) <= most:
        return points
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]


def fall(points: list[tuple[int, float]]) -> str:
    """A curve in a line: its first loss, its last, and the difference, in nats a token."""
    (first, before), (last, after) = points[0], points[-1]
    return (
        f"{before:.2f} at step {first:,}, {after:.2f} at step {last:,}: {before - after:.2f} less"
    )


def main(argv: list[str]) -> int:
    """Prints a line for each validation split that the run has measured."""
    (run,) = argv
    for name, points in loss_curve(Path(run)).items():
        if name.startswith("training_eval/") and points:
            print(f"  {fall(points)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
