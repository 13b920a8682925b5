"""Event files are read as TensorBoard reads them, up to what is damaged."""

import itertools
import math

import numpy as np
import pytest
from tensorboard.backend.event_processing import event_file_loader
from tensorboard.compat import tensorflow_stub
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util

from fakes import fake_runs
from t5x.monitoring.event_files import read_events

STEPS = [0, 1, 2, 127, 128, 300, 2**14, 2**31, 2**40]
ROWS = [
    (tag, step, value * (i + 1), fake_runs.BEGIN + i)
    for i, step in enumerate(STEPS)
    for tag, value in (("loss", 1.5), ("a/b", -0.25), ("ă", 3.0))
]


def flat(events):
    return {
        (tag, *point)
        for tag, p in events.scalars.items()
        for point in zip(p.steps, p.values, p.times, strict=True)
    }


@pytest.fixture
def data(tmp_path):
    return fake_runs.event_file(tmp_path / "events", ROWS).read_bytes()


def test_it_reads_what_tensorboard_reads(tmp_path, data, monkeypatch):
    monkeypatch.setattr(event_file_loader, "tf", tensorflow_stub)  # spares importing TensorFlow
    theirs = set()
    for event in event_file_loader.EventFileLoader(str(tmp_path / "events")).Load():
        for value in event.summary.value:
            number = float(tensor_util.make_ndarray(value.tensor))
            theirs.add((value.tag, event.step, number, event.wall_time))
    ours = read_events(data)
    assert flat(ours) == theirs == set(ROWS)
    assert ours.damaged == 0


def test_older_scalars_are_read_and_texts_are_skipped(tmp_path):
    writer = EventFileWriter(str(tmp_path))
    for step in (1, 2):
        values = [
            summary_pb2.Summary.Value(tag=tag, simple_value=0.5 * step) for tag in ("old", "more")
        ]
        summary = summary_pb2.Summary(value=values)
        writer.add_event(event_pb2.Event(step=step, wall_time=9.0, summary=summary))
    text = summary_pb2.Summary.Value(tag="config")
    text.tensor.CopyFrom(tensor_util.make_tensor_proto("a = 1"))
    writer.add_event(event_pb2.Event(step=3, summary=summary_pb2.Summary(value=[text])))
    writer.close()
    events = read_events(next(tmp_path.iterdir()).read_bytes())
    both = [("old", "more"), ((1, 0.5, 9.0), (2, 1.0, 9.0))]
    assert flat(events) == {(tag, *point) for tag, point in itertools.product(*both)}


def test_nan_and_infinity_are_kept():
    rows = [("loss", 1, math.nan, 1.0), ("loss", 2, math.inf, 2.0), ("loss", 3, 1.0, 3.0)]
    values = read_events(b"".join(fake_runs.record(fake_runs.scalar(*row)) for row in rows)).scalars
    assert np.isnan(values["loss"].values[0])
    assert values["loss"].values[1:] == [math.inf, 1.0]


def test_an_unfinished_record_hides_no_earlier_one(data):
    for end in range(len(data)):
        events = read_events(data[:end])
        assert flat(events) <= set(ROWS)
        assert events.damaged <= 120
    assert len(flat(read_events(data[:-1]))) == len(ROWS) - 1


def test_what_is_before_a_damaged_byte_is_read_and_the_rest_is_told(data):
    sizes = [read_events(data[:end]).damaged for end in range(len(data))]  # of the last record
    for place in range(0, len(data), 3):
        broken = bytearray(data)
        broken[place] ^= 0xFF
        events = read_events(bytes(broken))
        if events.damaged:
            assert flat(events) == flat(read_events(data[:place]))
            assert events.damaged == len(data) - place + sizes[place], place
        else:  # the checksum of a length
            assert flat(events) == set(ROWS), place


@pytest.mark.parametrize("junk", [b"", b"\0" * 5, b"\0" * 5000, b"PK\x03\x04" * 1000])
def test_other_files_have_no_scalars(junk):
    events = read_events(junk)
    assert not events.scalars
    assert events.damaged == len(junk)
