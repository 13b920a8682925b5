"""Removes local paths from what is published.

    text = without_local_paths(run.gin())             # MODEL_DIR = '…/ro_t5x_tiny'
    data = scalars_only(path.read_bytes())            # a TensorBoard file without its texts

Local paths are those of the machine that trained the model.
"""

import io
import re

from google.protobuf.message import DecodeError
from tensorboard.compat.proto import event_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from t5x.monitoring.event_files import records

_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
# Matches an absolute or ~ path after a delimiter: the delimiter, the folders, the file name.
_PATH = re.compile(r"(?<![^\s'\",=@(\[{])(?:file://)?(?:/|~/)(?:[^/'\",]*/)*([^/'\",]*)")


def without_local_paths(gin: str) -> str:
    """Return the gin text with each absolute path cut to its last part."""
    shorten = lambda match: _PATH.sub(r"…/\1", match[0])
    lines = (
        _PATH.sub(r"…/\1", line) if line.startswith("#") else _QUOTED.sub(shorten, line)
        for line in gin.split("\n")
    )
    return "\n".join(lines)


def scalars_only(data: bytes) -> bytes:
    """Return a TensorBoard file's content without texts, since these hold paths."""
    output = io.BytesIO()
    writer = RecordWriter(output)
    for record in records(data):
        try:
            event = event_pb2.Event.FromString(record)
        except DecodeError:
            continue
        values = [value for value in event.summary.value if not _may_hold_text(value)]
        if values or not event.summary.value:
            del event.summary.value[:]
            event.summary.value.extend(values)
            writer.write(event.SerializeToString())
    return output.getvalue()


def _may_hold_text(value) -> bool:
    return value.metadata.plugin_data.plugin_name not in ("", "scalars", "histograms") or bool(
        value.tensor.string_val
    )
