"""Reads the scalars of TensorBoard event files without TensorFlow.

A file is a sequence of records: length (8 bytes), its checksum (4), an `Event` message, its
checksum (4). Reading ends at the first damaged record, as in TensorBoard: usually the last one,
whose writer was killed.
"""

import dataclasses
import math
import struct
from collections.abc import Iterator

import google_crc32c
from google.protobuf.message import DecodeError
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.util import tensor_util

_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_HEAD = _LENGTH.size + _CHECKSUM.size
_FRAME = _HEAD + _CHECKSUM.size  # around a message
_STEPS = range(-(2**63), 2**63)  # of int64


@dataclasses.dataclass
class Points:
    """Steps, values and times (seconds since 1970) of one scalar, in the order written."""

    steps: list[int] = dataclasses.field(default_factory=list)
    values: list[float] = dataclasses.field(default_factory=list)
    times: list[float] = dataclasses.field(default_factory=list)

    def append(self, step: int, value: float, time: float) -> None:
        """Append a point, unless its step or time is impossible."""
        if step not in _STEPS or not math.isfinite(time):
            return
        self.steps.append(step)
        self.values.append(value)
        self.times.append(time)


@dataclasses.dataclass
class Events:
    """The scalars of a file by tag, and the number of bytes that could not be read."""

    scalars: dict[str, Points] = dataclasses.field(default_factory=dict)
    damaged: int = 0


def read_events(data: bytes) -> Events:
    """Return the scalars in a file's content, up to a damaged or an unfinished record."""
    events = Events()
    end = 0
    for record in records(data):
        end += len(record) + _FRAME
        _parse(record, events)
    events.damaged += len(data) - end
    return events


def records(data: bytes) -> Iterator[bytes]:
    """Yield the messages of a file's content, up to a damaged or an unfinished one."""
    position = 0
    while position + _FRAME <= len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        end = position + _HEAD + length
        record = data[position + _HEAD : end]
        if end + 4 > len(data) or masked_crc(record) != _CHECKSUM.unpack_from(data, end)[0]:
            return
        position = end + 4
        yield record


def masked_crc(data: bytes) -> int:
    """Return the checksum that follows a length or a message in a file."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _parse(record: bytes, events: Events) -> None:
    try:
        event = event_pb2.Event.FromString(record)
    except DecodeError:
        events.damaged += len(record)
        return
    for value in event.summary.value:
        number = _number(value)
        if number is not None:
            points = events.scalars.setdefault(value.tag, Points())
            points.append(event.step, number, event.wall_time)


def _number(value: summary_pb2.Summary.Value) -> float | None:
    """Return the value of a scalar, None for any other summary."""
    tensor = value.tensor
    if value.HasField("simple_value"):
        return value.simple_value
    # The shape of a damaged tensor may ask for any amount of memory.
    if not value.HasField("tensor") or any(d.size != 1 for d in tensor.tensor_shape.dim):
        return None
    try:
        array = tensor_util.make_ndarray(tensor)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, AssertionError):
        return None
    return float(array.item()) if array.size == 1 and array.dtype.kind in "fiu" else None
