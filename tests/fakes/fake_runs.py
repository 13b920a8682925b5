"""Run folders as finished runs leave them, with event files as TensorFlow writes them.

train = {"loss": [(100, 5.5), (200, 4.5)]}
folder = run(tmp_path / "tiny", {"train": train}, events=[{"event": "start", "step": 0}])
"""

import io
import json
import pathlib
from collections.abc import Iterable, Mapping

import numpy as np
from tensorboard.compat.proto import event_pb2, types_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

BEGIN = 1_760_000_000.0  # seconds since 1970


def record(message: bytes) -> bytes:
    """Return a message framed with its length and checksums."""
    out = io.BytesIO()
    RecordWriter(out).write(message)
    return out.getvalue()


def scalar(tag: str, step: int, value: float, time: float = BEGIN) -> bytes:
    """Return the event message of a scalar, as TensorFlow 2 writes it."""
    event = event_pb2.Event(wall_time=time, step=step)
    entry = event.summary.value.add(tag=tag)
    entry.metadata.plugin_data.plugin_name = "scalars"
    entry.tensor.dtype = types_pb2.DT_FLOAT
    entry.tensor.tensor_shape.SetInParent()
    entry.tensor.tensor_content = np.float32(value).tobytes()
    return event.SerializeToString()


def event_file(path: pathlib.Path, scalars: Iterable[tuple], more: bytes = b"") -> pathlib.Path:
    """Write an event file of (tag, step, value, time) rows, with the bytes `more` at its end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    first = event_pb2.Event(wall_time=BEGIN, file_version="brain.Event:2").SerializeToString()
    path.write_bytes(b"".join(map(record, [first, *(scalar(*row) for row in scalars)])) + more)
    return path


def run(
    folder: pathlib.Path,
    series: Mapping[str, Mapping[str, Iterable[tuple[int, float]]]],
    events: Iterable[Mapping] = (),
    config: str | None = None,
) -> pathlib.Path:
    """Write a MODEL_DIR. Step s is at BEGIN + s; events without a time are a minute apart."""
    for place, tags in series.items():
        rows = [(tag, s, v, BEGIN + s) for tag, points in tags.items() for s, v in points]
        event_file(folder / place / "events.out.tfevents.1.host", rows)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [{"time": BEGIN + 60 * i, **event} for i, event in enumerate(events)]
    if lines:
        (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if config is not None:
        (folder / "config.gin").write_text(config)
    return folder


def complete(folder: pathlib.Path, loss: float = 8.0) -> pathlib.Path:
    """Write a run with every kind of event: two starts, stalls, saves, infillings, task metrics."""
    steps = range(100, 1001, 100)
    name = "loss_per_nonpadding_target_token"
    curve = [(s, loss * 100 / (s + 100) + 2) for s in steps]
    train = {
        name: curve,
        "accuracy": [(s, s / 2000) for s in steps],
        "learning_rate": [(s, 0.01) for s in steps],
        "timing/tokens_per_second": [(s, 12_345.0) for s in steps],
        "timing/steps_per_second": [(s, 2.0) for s in steps],
        "device/mfu": [(s, 0.412) for s in steps],
        "device/peak_bytes": [(s, 3.0 * 2**30) for s in steps],
        "data/wait_share": [(s, 0.03) for s in steps],
        "data/records/my_corpus": [(s, s * 10.0 if s <= 500 else (s - 500) * 10.0) for s in steps],
        "data/epoch/my_corpus": [(s, 0.0) for s in steps],
        "some/other": [(s, 1.0) for s in steps],
    }
    validation = {name: [(s, v + 0.25) for s, v in curve], "accuracy": [(1000, 0.5)]}
    task = {"exact": [(500, 0.25), (1000, 0.75)]}
    sentence = "Merg la <extra_id_0> azi."
    events = [
        {"event": "start", "step": 0, "total_steps": 1000, "devices": 4, "device": "TPU v4"}
        | {"config": "TRAIN_STEPS = 500\nBATCH_SIZE = 128\n", "expected_loss": {"1000": 2.5}},
        {"event": "compile", "seconds": 20.0, "step": 0},
        {"event": "infill", "step": 100, "sentences": {sentence: "Merg la [] azi."}},
        {"event": "save", "step": 500, "seconds": 1.5},
        {"event": "saved", "step": 500},
        {"event": "interrupted", "step": 500, "reason": "SIGTERM"},
        {"event": "start", "step": 500, "total_steps": 1000, "devices": 4, "device": "TPU v4"}
        | {"config": "TRAIN_STEPS = 1000\nBATCH_SIZE = 128\n", "expected_loss": {"1000": 2.5}},
        {"event": "stall", "step": 600, "seconds": 45.0, "reason": "data"},
        {"event": "evaluate", "step": 1000, "seconds": 5.0, "task": "my_task"},
        {"event": "infill", "step": 1000, "sentences": {sentence: "Merg la [școală <b>] azi."}},
        {"event": "end", "step": 1000},
    ]
    places = {"train": train, "training_eval/my_task": validation, "inference_eval/qa": task}
    return run(folder, places, events, "TRAIN_STEPS = 1000\nBATCH_SIZE = 128\n")
