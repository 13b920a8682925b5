"""Where metrics go: TensorBoard, JSON lines, Weights & Biases, by name or as gin makes them.

  writers = Writers(("tensorboard", "jsonl"), "runs/tiny")
  writers("train").write_scalars(100, {"loss": 5.1})
  writers.close()

  watch.Watch.writers = ('tensorboard', @writers.WandbWriter)       # in a gin file
  writers.WandbWriter.project = 'my project'

A writer is a `clu.metric_writers.MetricWriter` of one folder below MODEL_DIR: `train`,
`training_eval/<task>`. Metrics have upstream T5X's names. Only the first host writes.
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


class _ScalarsAndTexts(metric_writers.MetricWriter):
    """A writer that knows nothing of pictures and sounds."""

    def _pass_over(self, *_, **__) -> None:
        """Leaves out what it cannot show."""

    write_summaries = write_images = write_videos = write_audios = _pass_over
    write_histograms = write_hparams = flush = close = _pass_over


class TensorBoardWriter(metric_writers.SummaryWriter):
    """Event files in `<model_dir>/<folder>`."""

    def __init__(self, model_dir: str, folder: str):
        super().__init__(os.path.join(model_dir, folder))


class JsonlWriter(_ScalarsAndTexts):
    """Lines of `<model_dir>/metrics.jsonl`: {"time": …, "folder": …, "step": …, name: value}."""

    def __init__(self, model_dir: str, folder: str):
        self._path, self._folder = os.path.join(model_dir, "metrics.jsonl"), folder

    def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Appends a line; numbers that JSON does not know are null."""
        plain = {k: float(np.asarray(v)) for k, v in scalars.items()}
        known = {k: v if np.isfinite(v) else None for k, v in plain.items()}
        line = {"time": time.time(), "folder": self._folder, "step": int(step), **known}
        with tf.io.gfile.GFile(self._path, "a") as file:
            file.write(json.dumps(line) + "\n")

    def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
        """Leaves them out: the configuration and what happens are in files of their own."""


class WandbWriter(_ScalarsAndTexts):
    """Weights & Biases: one run a MODEL_DIR, gone on with after a restart.

    Args:
      model_dir: gives the run its name and id.
      folder: goes before the names of metrics.
      project: as it is called there.
      mode: 'online', or 'offline' to send it later.
    """

    def __init__(self, model_dir: str, folder: str, project: str = "t5", mode: str = "online"):
        import wandb

        self._wandb, self._folder = wandb, folder
        if wandb.run is None:
            whole = model_dir if "://" in model_dir else os.path.abspath(model_dir)
            wandb.init(
                project=project,
                mode=mode,
                name=os.path.basename(whole.rstrip("/")),
                id=hashlib.sha256(whole.encode()).hexdigest()[:16],
                resume="allow",
            )
            # Its own count of steps never goes back; a restart may.
            wandb.define_metric("step")
            wandb.define_metric("*", step_metric="step")

    def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Sends them."""
        named = {f"{self._folder}/{k}": float(np.asarray(v)) for k, v in scalars.items()}
        self._wandb.log({"step": int(step), **named})

    def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
        """Sends them as a table's cells would be: text."""
        html = {f"{self._folder}/{k}": self._wandb.Html(v) for k, v in texts.items()}
        self._wandb.log({"step": int(step), **html})

    def close(self) -> None:
        """Ends the run there."""
        if self._wandb.run is not None:
            self._wandb.finish()


NAMES = {"tensorboard": TensorBoardWriter, "jsonl": JsonlWriter, "wandb": WandbWriter}
Maker = Callable[[str, str], metric_writers.MetricWriter]


def check(names: Sequence[str | Maker]) -> None:
    """Refuses writers that there are not.

    Raises:
      ValueError: says which there are, or what to install.
    """
    if isinstance(names, str):
        raise ValueError(f"watch.Watch.writers is {names!r}; set WRITERS to ({names!r},).")
    for name in names:
        if isinstance(name, str) and name not in NAMES:
            raise ValueError(
                f"watch.Watch.writers names {name!r}, which is no writer; set WRITERS to some of "
                f"{sorted(NAMES)}."
            )
        is_wandb = name == "wandb" or getattr(name, "__name__", None) == "WandbWriter"
        if is_wandb and importlib.util.find_spec("wandb") is None:
            raise ValueError(
                "watch.Watch.writers names 'wandb', which is not installed; run "
                "`.venv/bin/pip install wandb`, or take it out of WRITERS."
            )


class Writers:
    """The writers of one run, made when a folder is first written to.

    Args:
      names: keys of `NAMES`, or (model_dir, folder) to a writer.
      model_dir: MODEL_DIR.
    """

    def __init__(self, names: Sequence[str | Maker], model_dir: str):
        makers = [NAMES[name] if isinstance(name, str) else name for name in names]
        self._makers = makers if jax.process_index() == 0 else []
        self._model_dir = model_dir
        self._made: dict[str, metric_writers.MetricWriter] = {}

    def __call__(self, folder: str) -> metric_writers.MetricWriter:
        """All writers of a folder below MODEL_DIR as one."""
        if folder not in self._made:
            made: list[Any] = [make(self._model_dir, folder) for make in self._makers]
            self._made[folder] = metric_writers.MultiWriter(made)
        return self._made[folder]

    def flush(self) -> None:
        """Has what was written seen by who looks on."""
        for writer in self._made.values():
            writer.flush()

    def close(self) -> None:
        """Closes them."""
        for writer in self._made.values():
            writer.close()
