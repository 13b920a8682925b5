"""Reads the files of a MODEL_DIR, on disk or in a bucket, as the data of one run."""

import dataclasses
import re
import sys

import fsspec

from common.small_files import parse_json
from report.history import History
from report.series import Series, join
from t5x.monitoring.event_files import Events, Points, read_events

HISTORY = "events.jsonl"
_EVENTS, _LINES = "events.out.tfevents.", "metrics.jsonl"
# seqio's files of a task's metrics.
_TASK_METRICS = re.compile(r"(.*/)?([\w.-]+)-metrics\.jsonl$")
DECODED = "inference_eval"  # the folder of the metrics of decoded text


@dataclasses.dataclass(frozen=True)
class FileInfo:
    """A file's path below its folder, its bytes, and a stamp that changes when it is rewritten."""

    path: str
    size: int
    stamp: str


class Folder:
    """A folder without its checkpoints, at any path that fsspec reads."""

    def __init__(self, path: str):
        self.path = path.rstrip("/") or "/"
        self._system, self._root = fsspec.core.url_to_fs(self.path)
        self._system.invalidate_cache()
        self.name = self._root.rstrip("/").rpartition("/")[2]

    def exists(self) -> bool:
        """Return whether the folder exists."""
        return self._system.isdir(self._root)

    def files(self, prefix: str) -> list[FileInfo]:
        """Return all files whose name has a prefix, at most four folders down, sorted by path."""
        infos = []
        for folder, folders, files in self._system.walk(self._root, maxdepth=5, detail=True):
            for name in [n for n in folders if n.startswith("checkpoint_")]:
                del folders[name]
            below = folder[len(self._root) :].strip("/")
            for name, info in files.items():
                if name.startswith(prefix) and info["type"] == "file":
                    stamp = str(info.get("mtime") or info.get("updated") or info.get("etag"))
                    path = f"{below}/{name}" if below else name
                    infos.append(FileInfo(path, int(info.get("size") or 0), stamp))
        return sorted(infos, key=lambda file: file.path)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file below the folder, None if it is not there."""
        file = f"{self._root}/{path}"  # reading a pipe would not end
        return self._system.cat_file(file) if self._system.isfile(file) else None

    def read_text(self, path: str) -> str:
        """Return the text of a file below the folder, '' if it does not exist."""
        return (self.read(path) or b"").decode("utf-8", "replace")


@dataclasses.dataclass
class RunData:
    """All data of a run, and the name and path of its folder."""

    name: str
    path: str
    # {folder: {metric: Series}}; a folder is 'train', 'training_eval/<task>'.
    series: dict[str, dict[str, Series]]
    history: History
    config: str  # the last `config.gin`, empty if there is none
    notes: list[str]  # sentences on what could not be read

    @property
    def last_step(self) -> int:
        """The greatest known step of training."""
        steps = [s.steps[-1] for s in self.series.get("train", {}).values() if len(s)]
        return int(max(steps, default=0))


# Events of files that have not changed since they were read, by folder and file.
Cache = dict[tuple[str, FileInfo], Events]


def load(folder: Folder, cache: Cache | None = None) -> RunData:
    """Read all readable data of a run; a cache spares reading unchanged files again."""
    cache = {} if cache is None else cache
    notes: list[str] = []
    points: dict[str, dict[str, list[Points]]] = {}
    for file in folder.files(_EVENTS):
        key = (folder.path, file)
        if key not in cache:
            try:
                cache[key] = read_events(folder.read(file.path) or b"")
            except OSError as error:
                notes.append(f"{file.path}: it cannot be read ({error.strerror or error}).")
                continue
        events = cache[key]
        tags = points.setdefault(file.path.rpartition("/")[0] or "train", {})
        for tag, points_of_tag in events.scalars.items():
            tags.setdefault(tag, []).append(points_of_tag)
        # A few bytes at the end are a record that is being written.
        if events.damaged and not events.damaged < 16 < file.size:
            sizes = f"{events.damaged:,} of {file.size:,} bytes"
            notes.append(f"{file.path}: {sizes} are not read, from a damaged record on.")
    for name, logged in _json_lines(folder, notes).items():
        for tag, points_of_tag in logged.items():  # an event file of the same metric says the same
            points.setdefault(name, {}).setdefault(tag, [points_of_tag])
    joined = {
        n: {tag: join(parts, "train" in points) for tag, parts in tags.items()}
        for n, tags in points.items()
    }
    series = {n: {tag: s for tag, s in tags.items() if len(s)} for n, tags in joined.items()}
    last = max((s.times[-1] for tags in series.values() for s in tags.values()), default=0.0)
    history = History(folder.read_text(HISTORY), float(last))
    return RunData(folder.name, folder.path, series, history, folder.read_text("config.gin"), notes)


def _json_lines(folder: Folder, notes: list[str]) -> dict[str, dict[str, Points]]:
    """Return the metrics in `metrics.jsonl` and in seqio's files of task metrics."""
    metrics: dict[str, dict[str, Points]] = {}
    sources: list[tuple[str, str | None]] = [(_LINES, None)]
    for file in folder.files(""):
        if match := _TASK_METRICS.match(file.path):
            place = (match[1] or "").strip("/")  # also test/inference_eval, of launch/finetune.sh
            place = place if DECODED in place.split("/") else DECODED
            sources.append((file.path, f"{place}/{match[2]}"))
    for path, name in sources:
        damaged = 0
        for line in (folder.read(path) or b"").splitlines():
            try:
                values = parse_json(line)
                step, time = int(values.pop("step")), float(values.pop("time", 0.0))
            except (ValueError, KeyError, TypeError, OverflowError):
                damaged += 1
                continue
            tags = metrics.setdefault(name or str(values.pop("folder", "train")), {})
            for tag, value in values.items():
                if isinstance(value, int | float) or value is None:
                    is_finite = value is not None and abs(value) <= sys.float_info.max
                    number = float(value or 0) if is_finite else float("nan")
                    tags.setdefault(tag, Points()).append(step, number, time)
        if damaged:
            notes.append(f"{path}: {damaged} lines are damaged.")
    return metrics
