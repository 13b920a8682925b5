"""What happened in a run, a line an event: `<MODEL_DIR>/events.jsonl`.

  log = RunLog("runs/tiny")
  log.write("start", step=0, devices=8)     # {"time": 1760000000.1, "event": "start", "step": 0, …}
  with log.timed("evaluate", step=100): …   # … "event": "evaluate", "seconds": 2.5

A pause that is not in it is a time in which the run stood still. Events: start (with the
configuration where it is not the one before), compile, evaluate and infer (with what was measured),
infill, save, saved, stall, interrupted, end, failed. Only the first host writes.
"""

import concurrent.futures
import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from numbers import Real
from typing import Any

import jax
import tensorflow as tf
from absl import logging

NAME = "events.jsonl"
Metrics = dict[str, dict[str, float]]  # by task


class RunLog:
    """Appends to the events of MODEL_DIR, in the background; a disk that refuses stops no run."""

    def __init__(self, model_dir: str):
        self.path = f"{model_dir.rstrip('/')}/{NAME}"
        self._writes = jax.process_index() == 0
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "events")

    def write(self, event: str, **fields: Any) -> None:
        """Notes an event, with what JSON can say of it."""
        if not self._writes:
            return
        line = json.dumps({"time": time.time(), "event": event, **fields}, ensure_ascii=False)
        self._thread.submit(self._append, line)

    def close(self) -> None:
        """Waits until all is written."""
        self._thread.shutdown()

    def _append(self, line: str) -> None:
        try:
            with tf.io.gfile.GFile(self.path, "a") as file:
                file.write(line + "\n")
        except (tf.errors.OpError, OSError) as error:
            logging.warning("%s could not be written: %s", self.path, str(error).splitlines()[0])

    @contextlib.contextmanager
    def timed(self, event: str, **fields: Any) -> Iterator[dict[str, Any]]:
        """Notes an event once it is over, with its seconds and what is put into the dict."""
        started, noted = time.monotonic(), {}
        yield noted
        self.write(event, seconds=round(time.monotonic() - started, 3), **fields, **noted)

    def start(self, config: str | None, **fields: Any) -> None:
        """Notes a start; its configuration only where it differs from the last one."""
        changed = {} if config is None or config == self._last_config() else {"config": config}
        self.write("start", **fields, **changed)

    def events(self, event: str) -> list[dict[str, Any]]:
        """What was noted of a kind, oldest first; nothing on hosts that do not write."""
        self._thread.submit(lambda: None).result()  # what was noted just now is in the file
        if not self._writes or not tf.io.gfile.exists(self.path):
            return []
        found = []
        with tf.io.gfile.GFile(self.path) as file:
            for line in file.read().splitlines():
                with contextlib.suppress(ValueError):  # cut short by a kill
                    found.append(json.loads(line))
        return [one for one in found if one.get("event") == event]

    def measured(self, event: str) -> dict[int, Metrics]:
        """What evaluations noted as `event` have found, by step; of one made twice the last."""
        found: dict[int, Metrics] = {}
        for one in self.events(event):
            found.setdefault(one.get("step"), {}).update(one.get("metrics", {}))
        return found

    def saved_without(self, step: int, kinds: Iterable[str]) -> bool:
        """Whether a checkpoint of `step` was saved, and one of these evaluations never noted."""
        saved = any(one.get("step") == step for one in self.events("save"))
        return saved and any(step not in self.measured(kind) for kind in kinds)

    def _last_config(self) -> str | None:
        configs = [one["config"] for one in self.events("start") if one.get("config")]
        return configs[-1] if configs else None


def numbers(results: Mapping[str, Mapping[str, Any]]) -> Metrics:
    """Those of the metrics that are numbers, by task, as JSON holds them."""
    return {
        task: {name: float(v) for name, v in values.items() if isinstance(v, Real)}
        for task, values in results.items()
    }
