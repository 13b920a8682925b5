"""Writes metrics to TensorBoard, JSON lines, Weights & Biases or trackio.

  watch.Watch.writers = ('tensorboard', @metric_writers.WandbWriter)       # in a gin file
  metric_writers.WandbWriter.project = 'my project'

Gin files name a writer or make one. A writer is a `clu.metric_writers.MetricWriter` for one folder
below MODEL_DIR: `train`, `training_eval/<task>`. Metrics have upstream T5X's names. Only the first
host writes.
"""

import hashlib
import importlib.util
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import tensorflow as tf
from clu import metric_writers

from common.errors import UserError


class _ScalarsAndTexts(metric_writers.MetricWriter):
    """A writer that ignores images, audio and histograms."""

    def _ignore(self, *_: Any, **__: Any) -> None:
        """Write nothing."""

    write_summaries = write_images = write_videos = write_audios = _ignore
    write_histograms = write_hparams = write_texts = flush = close = _ignore


class TensorBoardWriter(metric_writers.SummaryWriter):
    """Event files in `<model_dir>/<folder>`."""

    def __init__(self, model_dir: str, folder: str):
        super().__init__(os.path.join(model_dir, folder))


class JsonlWriter(_ScalarsAndTexts):
    """Lines of `<model_dir>/metrics.jsonl`: {"time": …, "folder": …, "step": …, name: value}."""

    def __init__(self, model_dir: str, folder: str):
        self._path, self._folder = os.path.join(model_dir, "metrics.jsonl"), folder

    def write_scalars(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Append a line; NaN and infinity, which JSON lacks, are null."""
        line = {"time": time.time(), "folder": self._folder, "step": int(step)}
        values = {k: float(np.asarray(v)) for k, v in scalars.items()}
        line |= {k: v if np.isfinite(v) else None for k, v in values.items()}
        with tf.io.gfile.GFile(self._path, "a") as file:
            file.write(json.dumps(line) + "\n")


def _identity(model_dir: str) -> tuple[str, str]:
    """Return the name of a run, and a key that no other MODEL_DIR has."""
    path = model_dir if "://" in model_dir else os.path.abspath(model_dir)
    return os.path.basename(path.rstrip("/")), hashlib.sha256(path.encode()).hexdigest()[:16]


class WandbWriter(_ScalarsAndTexts):
    """Weights & Biases: one run per MODEL_DIR, resumed; mode 'offline' sends it later."""

    def __init__(self, model_dir: str, folder: str, project: str = "t5", mode: str = "online"):
        import wandb

        self._wandb, self._folder = wandb, folder
        if wandb.run is None:
            name, key = _identity(model_dir)
            wandb.init(project=project, mode=mode, name=name, id=key, resume="allow")
            # wandb's own step count never decreases; a restarted run's may.
            wandb.define_metric("step")
            wandb.define_metric("*", step_metric="step")

    def write_scalars(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Send the values."""
        self._log(step, {k: float(np.asarray(v)) for k, v in scalars.items()})

    def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
        """Send the values."""
        self._log(step, {k: self._wandb.Html(v) for k, v in texts.items()})

    def _log(self, step: int, values: Mapping[str, Any]) -> None:
        by_folder = {f"{self._folder}/{name}": value for name, value in values.items()}
        self._wandb.log({"step": int(step), **by_folder})

    def close(self) -> None:
        """End the run at the service."""
        if self._wandb.run is not None:
            self._wandb.finish()


class TrackioWriter(_ScalarsAndTexts):
    """trackio, here or in a Space of the hub (`space_id`): one run per MODEL_DIR, resumed."""

    _run: Any = None  # of this process; the writers of all folders share it

    def __init__(
        self, model_dir: str, folder: str, project: str = "t5", space_id: str | None = None
    ):
        import trackio

        self._folder = folder
        if TrackioWriter._run is None:
            name = "-".join(_identity(model_dir))  # trackio resumes a run by its name
            TrackioWriter._run = trackio.init(
                project=project, name=name, space_id=space_id, resume="allow", embed=False
            )

    def write_scalars(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Send the values."""
        values = {f"{self._folder}/{k}": float(np.asarray(v)) for k, v in scalars.items()}
        TrackioWriter._run.log(values, step=int(step))

    def close(self) -> None:
        """End the run at the service."""
        if TrackioWriter._run is not None:
            TrackioWriter._run.finish()
            TrackioWriter._run = None


WRITERS = {
    "tensorboard": TensorBoardWriter,
    "jsonl": JsonlWriter,
    "wandb": WandbWriter,
    "trackio": TrackioWriter,
}
_PACKAGES = {"WandbWriter": "wandb", "TrackioWriter": "trackio"}  # needed by nothing else
MakeWriter = Callable[[str, str], metric_writers.MetricWriter]


def check_names(names: Sequence[str | MakeWriter]) -> None:
    """Raise UserError if a writer's name is unknown, or its package is not installed."""
    if isinstance(names, str):
        raise UserError("watch.Watch.writers", names, to_set=f"set WRITERS to ({names!r},)")
    for name in names:
        if isinstance(name, str) and name not in WRITERS:
            raise UserError(
                "watch.Watch.writers",
                why=f"has {name!r}, which is not a writer",
                to_set=f"set WRITERS to some of {sorted(WRITERS)}",
            )
        maker = WRITERS[name] if isinstance(name, str) else name
        package = _PACKAGES.get(getattr(maker, "__name__", ""))
        if package and importlib.util.find_spec(package) is None:
            raise UserError(
                "watch.Watch.writers",
                why=f"has {package!r}, which is not installed",
                to_set=f"run `.venv/bin/pip install {package}`, or remove it from WRITERS",
            )


class MetricWriters:
    """The metric writers of one run, by name or factory; made when a folder is first used."""

    def __init__(self, names: Sequence[str | MakeWriter], model_dir: str):
        makers = [WRITERS[name] if isinstance(name, str) else name for name in names]
        self._makers = makers if jax.process_index() == 0 else []
        self._model_dir = model_dir
        self._writers: dict[str, metric_writers.MetricWriter] = {}

    def __call__(self, folder: str) -> metric_writers.MetricWriter:
        """Return all writers of a folder below MODEL_DIR as one."""
        if folder not in self._writers:
            writers = [make(self._model_dir, folder) for make in self._makers]
            self._writers[folder] = metric_writers.MultiWriter(writers)
        return self._writers[folder]

    def flush(self) -> None:
        """Make what was written visible to readers."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Close all writers."""
        for writer in self._writers.values():
            writer.close()
