"""The page of any files, however damaged, is made, and its data is strict JSON."""

import json
import math
import random
import struct

import pytest
from tensorboard.compat.proto import event_pb2, summary_pb2

from fakes import fake_runs
from report import page
from report.run_data import Folder, load

NUMBERS = (0, 1, -1, 2**31, 2**62, -(2**63), 2**63 - 1)
FLOATS = (0.0, -1.5, 1e30, 1e-300, math.nan, math.inf, -math.inf)
TAGS = ("loss", "data/records/ro", "timing/tokens_per_second", "", "ă\0", "data/epoch/x/y")
JSON = (None, True, -1, 10**400, 1e308, math.nan, math.inf, "x", "", [], [1], {}, {"a": {"b": 1}})


def any_event(rng: random.Random) -> bytes:
    """Return an event whose fields have any values that the format allows."""
    value = summary_pb2.Summary.Value(tag=rng.choice(TAGS))
    if rng.random() < 0.3:
        value.simple_value = rng.choice(FLOATS)
    else:
        value.tensor.dtype = rng.choice((1, 2, 3, 7, 10, 14, 99, -5))
        for _ in range(rng.randrange(3)):
            value.tensor.tensor_shape.dim.add(size=rng.choice((0, 1, 2, -1, 2**60)))
        if rng.random() < 0.5:
            value.tensor.tensor_content = rng.randbytes(rng.choice((0, 3, 4, 8)))
        else:
            value.tensor.float_val.append(rng.choice(FLOATS))
            value.tensor.string_val.append(b"text")
    event = event_pb2.Event(wall_time=rng.choice((*FLOATS, fake_runs.BEGIN)))
    event.step = rng.choice(NUMBERS)
    event.summary.CopyFrom(summary_pb2.Summary(value=[value] * rng.randrange(1, 3)))
    return event.SerializeToString()


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return the data cut short, with other bytes in it, or nothing of it."""
    place = rng.randrange(len(data))
    return rng.choice(
        (
            data[:place],
            data[:place] + rng.randbytes(20) + data[place + 20 :],
            rng.randbytes(200),
            b"\0" * 300,
            struct.pack("<Q", 2**63) + data,
            b"",
        )
    )


def any_lines(rng: random.Random) -> str:
    names = ("event", "time", "step", "seconds", "total_steps", "sentences", "expected_loss")
    names += ("config", "devices", "device", "task", "loss", "folder", "reason")
    kinds = ("start", "evaluate", "saved", "infill", "end", "stall")
    lines = []
    for _ in range(8):
        event = {name: rng.choice(JSON) for name in rng.sample(names, 5)}
        event |= {"event": rng.choice(kinds), "time": rng.choice((1.0, fake_runs.BEGIN, math.inf))}
        lines.append(json.dumps(event))
    lines += ["[" * 100_000, "{", "null", "[]", '{"step": 1e999, "loss": 1}', '{"step": 5, "x": 2}']
    rng.shuffle(lines)
    return "\n".join(lines)


def not_json(name: str):
    raise AssertionError(f"{name} is not JSON")


@pytest.mark.parametrize("seed", range(12))
def test_a_page_of_damaged_files_is_made(seed, tmp_path):
    rng = random.Random(seed)
    good = b"".join(fake_runs.record(any_event(rng)) for _ in range(12))
    folder = tmp_path / "train"
    folder.mkdir()
    (folder / "events.out.tfevents.1.intact").write_bytes(good)
    (folder / "events.out.tfevents.2.damaged").write_bytes(damaged(good, rng))
    (folder / "events.out.tfevents.3.folder").mkdir()
    for name in ("events.jsonl", "metrics.jsonl", "ro-metrics.jsonl"):
        (tmp_path / name).write_text(any_lines(rng))
    (tmp_path / "config.gin").write_bytes(rng.randbytes(50))
    text = page.html([load(Folder(str(tmp_path)))], now=fake_runs.BEGIN)
    data = text.partition('id="data">')[2].partition("</script>")[0]
    assert len(json.loads(data, parse_constant=not_json)["runs"]) == 1
