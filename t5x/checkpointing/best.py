"""Which checkpoints of a run are its best, by a metric of its evaluations.

  best = BestCheckpoints("runs/quality", 1, "inference_eval/quality/accuracy", "max")
  best.note(2000, {"inference_eval": {"quality": {"accuracy": 0.93}}})    # True: none was better
  best.steps()                                                            # [2000]
  best_checkpoint("runs/quality")                # "runs/quality/checkpoint_2000", in any process

The values stand in `best.json` beside the checkpoints, so that a run that starts again knows them:
{"metric": …, "mode": "max", "keep": 1, "values": {"2000": 0.93}}.
"""

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from etils import epath

from t5x.checkpointing import layout
from t5x.multihost.broadcast import broadcast_from_first

RECORD = "best.json"
KINDS = ("training_eval", "inference_eval")
Results = Mapping[str, Mapping[str, Mapping[str, Any]]]


class BestCheckpoints:
    """The best checkpoints of one run.

    Args:
      run_folder: MODEL_DIR.
      keep: so many are the best; None or 0 for none.
      metric: `<training_eval or inference_eval>/<task>/<name>`.
      mode: 'max' or 'min', what is better.
    """

    def __init__(self, run_folder: str, keep: int | None, metric: str | None, mode: str):
        self.run_folder, self.keep = run_folder, keep or 0
        self.metric, self.mode = metric, mode
        self._values = {}
        record = _record(run_folder) if self.keep else None
        if record and (record["metric"], record["mode"]) == (metric, mode):
            self._values = {int(step): value for step, value in record["values"].items()}

    def note(self, step: int, results: Results) -> bool:
        """Notes what an evaluation at `step` has found; the same on every host.

        Args:
          step: updates applied.
          results: kind of evaluation to task to metric to value; complete on the first host.

        Returns:
          Whether this step is now one of the best, whose checkpoint is worth saving.

        Raises:
          ValueError: the evaluation has no such metric, or it is no number.
        """
        if not self.keep or self.metric.partition("/")[0] not in results:
            return False
        return broadcast_from_first(lambda: self._note(step, results))

    def _note(self, step: int, results: Results) -> bool:
        kind, task, name = self.metric.split("/", 2)
        value = results[kind].get(task, {}).get(name)
        if not isinstance(value, int | float) and not hasattr(value, "item"):
            known = [f"{kind}/{t}/{n}" for t, values in results[kind].items() for n in values]
            raise ValueError(
                f"SaveCheckpointConfig.metric is {self.metric!r}, and the evaluation at step "
                f"{step} measured only {', '.join(sorted(known))}; set it to one of these."
            )
        if math.isnan(value := float(value)):
            return False
        self._values[step] = value
        record = {"metric": self.metric, "mode": self.mode, "keep": self.keep}
        path = epath.Path(self.run_folder) / RECORD
        unfinished = path.with_name(f"{RECORD}.tmp")
        unfinished.write_text(json.dumps({**record, "values": self._values}))
        unfinished.replace(path)
        return step in _best([*layout.all_steps(self.run_folder), step], self._values,
                             self.mode, self.keep)  # fmt: skip

    def leads(self, step: int) -> bool:
        """Whether no evaluation has been better than that at `step`; known on the first host."""
        return _best(list(self._values), self._values, self.mode, 1) == [step]

    def steps(self) -> list[int]:
        """The steps of the best checkpoints that are there, best first."""
        if not self._values:
            return []
        there = layout.all_steps(self.run_folder)
        return _best(there, self._values, self.mode, self.keep)


def best_checkpoint(run_folder: str) -> str | None:
    """The folder of the best checkpoint that is there, None where no evaluation has been noted."""
    record = _record(run_folder)
    values = {int(step): value for step, value in record["values"].items()} if record else {}
    there = layout.all_steps(run_folder)
    best = _best(there, values, record["mode"], 1) if record else []
    return layout.step_folder(run_folder, best[0]) if best else None


def _best(steps: list[int], values: Mapping[int, float], mode: str, keep: int) -> list[int]:
    """Those of `steps` with the best values, best first; of equal ones the earlier."""
    sign = -1 if mode == "max" else 1
    return sorted({s for s in steps if s in values}, key=lambda s: (sign * values[s], s))[:keep]


def _record(run_folder: str) -> dict[str, Any] | None:
    path = epath.Path(os.path.join(run_folder, RECORD))
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged ({error}), so nobody knows which checkpoint is the best; delete it "
            "to begin to compare anew."
        ) from error


def check(keep: int | None, metric: str | None, mode: str) -> None:
    """Refuses settings that name no metric.

    Raises:
      ValueError: one sentence with what to set.
    """
    if keep and (not metric or len(metric.split("/", 2)) < 3 or metric.split("/")[0] not in KINDS):
        raise ValueError(
            f"SaveCheckpointConfig.keep_best is {keep} and .metric {metric!r}, which names no "
            "metric of a task; set it to 'inference_eval/<task>/<name>' or "
            "'training_eval/<task>/<name>'."
        )
    if metric and not keep:
        raise ValueError(
            f"SaveCheckpointConfig.metric is {metric!r}, but .keep_best {keep}, so no checkpoint "
            "is kept for it; set keep_best to 1 or more."
        )
    if mode not in ("max", "min"):
        raise ValueError(
            f"SaveCheckpointConfig.mode is {mode!r}; set it to 'max' where more is better, else to "
            "'min'."
        )
