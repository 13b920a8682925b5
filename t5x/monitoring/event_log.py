"""Logs the events of a run, one a line, to `<MODEL_DIR>/events.jsonl`.

  log = EventLog("runs/tiny")
  log.write("start", step=0, devices=8)     # {"time": 1760000000.1, "event": "start", "step": 0, …}
  with log.timed("evaluate", step=100): …   # … "event": "evaluate", "seconds": 2.5

Events: start (with the configuration if it has changed), compile, evaluate and infer (with their
metrics), measured (once all evaluations of a step are done), infill, save, saved, stall, skipped,
returned, interrupted, end, failed. Only the first host writes.
"""

import concurrent.futures
import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from typing import Any

import jax
import tensorflow as tf
from absl import logging
from etils import epath

from common.errors import first_line
from common.small_files import parse_json

NAME = "events.jsonl"
Metrics = dict[str, dict[str, float]]  # by task


class EventLog:
    """Appends events in the background; a disk that refuses them does not stop the run."""

    def __init__(self, model_dir: str):
        self.path = f"{model_dir.rstrip('/')}/{NAME}"
        self._writes = jax.process_index() == 0
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "events")
        self._appended = False

    def write(self, event: str, **fields: Any) -> None:
        """Log an event with fields that JSON can hold."""
        if self._writes:
            line = {"time": time.time(), "event": event, **fields}
            self._thread.submit(self._append, json.dumps(line, ensure_ascii=False))

    def close(self) -> None:
        """Wait until everything is written."""
        self._thread.shutdown()

    def _append(self, line: str) -> None:
        try:
            begin = "" if self._appended or not self._cut_short() else "\n"
            with tf.io.gfile.GFile(self.path, "a") as file:
                file.write(f"{begin}{line}\n")
            self._appended = True
        except (tf.errors.OpError, OSError) as error:
            logging.warning("%s could not be written: %s", self.path, first_line(error))

    def _cut_short(self) -> bool:
        """Return whether the last line is incomplete because the process was killed."""
        path = epath.Path(self.path)
        return path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")

    @contextlib.contextmanager
    def timed(self, event: str, **fields: Any) -> Iterator[dict[str, Any]]:
        """Log an event after the block, with its duration and the fields that the block adds."""
        started = time.monotonic()
        added: dict[str, Any] = {}
        yield added
        self.write(event, seconds=round(time.monotonic() - started, 3), **fields, **added)

    def start(self, config: str | None, **fields: Any) -> None:
        """Log a start, and its configuration if that of the last start was different."""
        earlier = [event["config"] for event in self.events("start") if event.get("config")]
        changed = {} if config in (None, *earlier[-1:]) else {"config": config}
        self.write("start", **fields, **changed)

    def events(self, event: str) -> list[dict[str, Any]]:
        """Return the events of one kind, oldest first; an empty list on hosts that do not write."""
        return [entry for entry in self._all() if entry.get("event") == event]

    def _all(self) -> list[dict[str, Any]]:
        self._thread.submit(lambda: None).result()  # wait for the events before it
        path, events = epath.Path(self.path), []
        if self._writes and path.exists():
            for line in path.read_bytes().splitlines():  # a str is also split at U+2028
                with contextlib.suppress(ValueError):  # cut short by a kill
                    events.append(parse_json(line))
        return [event for event in events if isinstance(event.get("step", 0), int)]

    def metrics_by_step(self, event: str) -> dict[int, Metrics]:
        """Return the metrics logged as `event`, by step; a later evaluation of a step wins."""
        metrics: dict[int, Metrics] = {}
        for entry in self.events(event):
            if "step" in entry and isinstance(entry.get("metrics"), dict):
                metrics.setdefault(entry["step"], {}).update(entry["metrics"])
        return metrics

    def saved_unmeasured(self, step: int) -> bool:
        """Return whether `step` was saved, but not measured, and is not the end of the run."""
        kinds = {entry.get("event") for entry in self._all() if entry.get("step") == step}
        return "save" in kinds and not kinds & {"measured", "end"}


def numeric_metrics(results: Mapping[str, Mapping[str, Any]]) -> Metrics:
    """Return the metrics that are numbers, by task, as JSON holds them.

    Integers stay so: actions that recall them do not count them.
    """
    number = lambda v: int(v) if isinstance(v, Integral) else float(v)
    return {
        task: {name: number(v) for name, v in values.items() if isinstance(v, Real)}
        for task, values in results.items()
    }
