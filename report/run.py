"""One run, read from its MODEL_DIR.

run = load(Folder("runs/tiny"), Cache())
run.series["train"]["loss"]         # Series
run.history.configs
"""

import dataclasses
import json
import re
from collections.abc import Callable

import numpy as np

from report.folder import File, Folder
from report.history import History
from report.series import Series, joined
from t5x.monitoring.event_files import Events, Points, read_events

_EVENTS, _LINES, _HISTORY = "events.out.tfevents.", "metrics.jsonl", "events.jsonl"
# seqio names a metric after its task once more, or not.
_TASK_METRICS = re.compile(r"(?:^|.*/)([\w.-]+)-metrics\.jsonl$")


@dataclasses.dataclass
class Run:
    """All that is known of a run.

    Attributes:
      name: to be called by.
      path: where it lies.
      series: by folder below MODEL_DIR ('train', 'training_eval/<task>'), then by metric.
      texts: (step, text) by folder and tag.
      history: what happened when.
      config: the last `config.gin`, empty where there is none.
      notes: what could not be read, in sentences.
    """

    name: str
    path: str
    series: dict[str, dict[str, Series]]
    texts: dict[str, dict[str, list[tuple[int, str]]]]
    history: History
    config: str
    notes: list[str]

    @property
    def last_step(self) -> int:
        """The greatest step of training that is known."""
        steps = [s.steps[-1] for s in self.series.get("train", {}).values() if len(s)]
        return int(max(steps, default=0))


class Cache:
    """What was read of files that have not changed since, so that watching costs little."""

    def __init__(self):
        self._known: dict[tuple[str, File], Events] = {}

    def __call__(self, folder: Folder, file: File, make: Callable[[bytes], Events]) -> Events:
        """What `make` gives for a file."""
        key = (folder.path, file)
        if key not in self._known:
            self._known[key] = make(folder.read(file.path) or b"")
        return self._known[key]


def load(folder: Folder, cache: Cache | None = None) -> Run:
    """Reads all of a run that can be read."""
    cache, notes = cache or Cache(), []
    parts: dict[str, list[Events]] = {}
    for file in folder.files(_EVENTS):
        events = cache(folder, file, read_events)
        parts.setdefault(file.path.rpartition("/")[0] or "train", []).append(events)
        if events.damaged and not _is_end_of_write(events, file):
            notes.append(f"{file.path}: {events.damaged:,} of {file.size:,} bytes are broken.")
    series, texts = _by_tag(parts)
    for place, found in _lines(folder, notes).items():
        for tag, points in found.items():  # where both were written they say the same
            series.setdefault(place, {}).setdefault(tag, joined([points]))
    lasts = [s.times[-1] for tags in series.values() for s in tags.values() if len(s)]
    history = (folder.read(_HISTORY) or b"").decode("utf-8", "replace")
    config = (folder.read("config.gin") or b"").decode("utf-8", "replace")
    history = History(history, float(np.max(lasts)) if lasts else 0.0)
    return Run(folder.name, folder.path, series, texts, history, config, notes)


def _is_end_of_write(events: Events, file: File) -> bool:
    """A last record of a few bytes is one that is just being written."""
    return events.damaged < 16 < file.size


def _by_tag(parts: dict[str, list[Events]]):
    series: dict[str, dict[str, Series]] = {}
    texts: dict[str, dict[str, list[tuple[int, str]]]] = {}
    for place, files in parts.items():
        for tag in {tag: None for events in files for tag in events.scalars}:
            points = [events.scalars[tag] for events in files if tag in events.scalars]
            series.setdefault(place, {})[tag] = joined(points)
        for events in files:
            for tag, found in events.texts.items():
                texts.setdefault(place, {}).setdefault(tag, []).extend(found)
    return series, texts


def _lines(folder: Folder, notes: list[str]) -> dict[str, dict[str, Points]]:
    """What stands in `metrics.jsonl`, and in what seqio writes of the metrics of tasks."""
    found: dict[str, dict[str, Points]] = {}
    sources = [(_LINES, None)]
    for file in folder.files(""):
        if match := _TASK_METRICS.match(file.path):
            sources.append((file.path, f"inference_eval/{match[1]}"))
    for path, place in sources:
        broken = 0
        for line in (folder.read(path) or b"").splitlines():
            try:
                values = json.loads(line)
                step, time = int(values.pop("step")), float(values.pop("time", 0.0))
            except (ValueError, KeyError, TypeError, AttributeError):
                broken += 1
                continue
            tags = found.setdefault(place or str(values.pop("folder", "train")), {})
            for tag, value in values.items():
                if isinstance(value, int | float) or value is None:
                    points = tags.setdefault(tag, Points())
                    points.steps.append(step)
                    points.values.append(float("nan") if value is None else float(value))
                    points.times.append(time)
        if broken:
            notes.append(f"{path}: {broken} lines are broken.")
    return found
