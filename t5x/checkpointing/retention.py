"""Which checkpoints of a run are kept: the newest, pinned steps, and the best by a metric.

  best = BestCheckpoints("runs/quality", 1, "inference_eval/quality/accuracy", "max")
  best.record(2000, {"inference_eval": {"quality": {"accuracy": 0.93}}})  # True: among the best
  best.steps()                                                            # [2000]
  best_checkpoint("runs/quality")                # "runs/quality/checkpoint_2000", in any process

The values are kept in `best.json` next to the checkpoints, for a restart:
{"metric": …, "mode": "max", "keep": 1, "values": {"2000": 0.93}}.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from etils import epath

from common.errors import UserError
from common.small_files import parsing, read_json
from t5x.checkpointing import layout
from t5x.multihost.broadcast import broadcast_from_first

RECORD = "best.json"
Results = Mapping[str, Mapping[str, Mapping[str, Any]]]


class BestCheckpoints:
    """The best checkpoints of one run.

    Args:
      run_folder: MODEL_DIR.
      keep: their number; None or 0 for none.
      metric: `<training_eval or inference_eval>/<task>/<name>`.
      mode: 'max' or 'min', what is better.
    """

    def __init__(self, run_folder: str, keep: int | None, metric: str | None, mode: str):
        self.run_folder, self.keep = run_folder, keep or 0
        self.metric, self.mode = metric or "", mode
        record = _read_record(run_folder) if self.keep else {}
        same = (record.get("metric"), record.get("mode")) == (metric, mode)
        self._values: dict[int, float] = record["values"] if same else {}

    def record(self, step: int, results: Results) -> bool:
        """Record the results of an evaluation, and return whether `step` is now among the best.

        `results` map a kind of evaluation to task to metric to value. They are complete on the
        first host, which decides for all. Raise UserError if there is no such metric, or it is no
        number.
        """
        if not self.keep or self.metric.partition("/")[0] not in results:
            return False
        return broadcast_from_first(lambda: self._record(step, results))

    def _record(self, step: int, results: Results) -> bool:
        kind, task, name = self.metric.split("/", 2)
        value: Any = results[kind].get(task, {}).get(name)
        if not isinstance(value, int | float) and not hasattr(value, "item"):
            measured = [f"{kind}/{t}/{n}" for t, values in results[kind].items() for n in values]
            raise UserError(
                "SaveCheckpointConfig.metric",
                self.metric,
                f"but the evaluation at step {step} measured only {', '.join(sorted(measured))}",
                "set it to one of these",
            )
        if math.isnan(value := float(value)):
            return False
        self._values[step] = value
        record = {"metric": self.metric, "mode": self.mode, "keep": self.keep}
        path = epath.Path(self.run_folder) / RECORD
        temporary = path.with_name(f"{RECORD}.tmp")
        temporary.write_text(json.dumps({**record, "values": self._values}))
        temporary.replace(path)
        candidates = [*layout.all_steps(self.run_folder), step]
        return step in _best(candidates, self._values, self.mode, self.keep)

    def is_best_so_far(self, step: int) -> bool:
        """Return whether no evaluation was better than that at `step`; known on the first host."""
        return _best(list(self._values), self._values, self.mode, 1) == [step]

    def steps(self) -> list[int]:
        """Return the steps of the best checkpoints that exist, best first."""
        existing = layout.all_steps(self.run_folder) if self._values else []
        return _best(existing, self._values, self.mode, self.keep)


def best_checkpoint(run_folder: str) -> str | None:
    """Return the best checkpoint that exists, None where no evaluation was recorded."""
    record = _read_record(run_folder)
    steps = layout.all_steps(run_folder) if record else []
    best = _best(steps, record.get("values", {}), record.get("mode", "max"), 1)
    return layout.step_folder(run_folder, best[0]) if best else None


def _best(steps: list[int], values: Mapping[int, float], mode: str, keep: int) -> list[int]:
    """Return the `steps` with the best values, best first; of equal ones the earlier."""
    sign = -1 if mode == "max" else 1
    return sorted({s for s in steps if s in values}, key=lambda s: (sign * values[s], s))[:keep]


def _read_record(run_folder: str) -> dict[str, Any]:
    path = epath.Path(os.path.join(run_folder, RECORD))
    if not path.exists():
        return {}
    with parsing(path, "delete it to start the search for the best checkpoint again"):
        record = read_json(path)
        values = {int(step): float(value) for step, value in record["values"].items()}
    return record | {"values": values}


def steps_to_delete(
    steps: Iterable[int], keep: int | None, pinned: Iterable[int] = ()
) -> list[int]:
    """Return all but the newest `keep` steps and the pinned ones, which do not count."""
    counted = sorted(set(steps) - set(pinned))
    return counted[:-keep] if keep else []
