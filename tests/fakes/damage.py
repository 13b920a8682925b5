"""Damages to the files of checkpoints, and starts of a run from what they leave.

files(folder)                               # [Path("_CHECKPOINT_METADATA"), …], relative
damage(folder / "state/_METADATA", "a JSON list", random.Random(0))

starter = Starter(tmp_path / "sound")       # trains a toy run with checkpoints 4, 8 and 12
shutil.copytree(starter.folder, copy)
...                                         # damage the copy
starter.start(copy)                         # Found(step=8, said=["… is missing …"])
"""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import pathlib
import random
import shutil
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from fakes import toy
from t5x.checkpointing import layout
from t5x.checkpoints import Checkpointer
from t5x.input_pipeline.stream import TrainStream
from t5x.partitioning import PjitPartitioner
from t5x.start import checkpoint as run_start
from t5x.start.state import starting_state
from t5x.start.stream import open_stream
from t5x.train_state import state_specs
from t5x.trainer import Trainer

STEPS = (4, 8, 12)
JSONS = {"a JSON list": [], "a JSON object": {}, "a JSON number": 7, "a JSON null": None}
JSONS |= {"a JSON string": "x", "a JSON object of lists": {"state": [], "custom_metadata": []}}
KINDS = ("deleted", "emptied", "truncated", "random bytes", "flipped bytes", "a folder", *JSONS)
KINDS += ("a link to nothing",)
# A part of a checkpoint that a hasty cleaning takes away.
FOLDERS = ("state", "dataset", "state/ocdbt.process_0", "state/d")


def files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the paths of the files in a folder, relative to it."""
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def damage(path: pathlib.Path, kind: str, rng: random.Random | None = None) -> None:
    """Damage one file, or delete one folder, as one of `KINDS` says, or by a pipe or loop."""
    if path.is_dir():
        shutil.rmtree(path)
        return
    rng, data = rng or random.Random(0), bytearray(path.read_bytes())
    if kind in ("deleted", "a folder", "a pipe", "a link to nothing", "a link to itself"):
        path.unlink()
        if kind == "a folder":
            path.mkdir()
        elif kind == "a pipe":
            os.mkfifo(path)
        elif kind != "deleted":
            path.symlink_to("absent" if kind == "a link to nothing" else path.name)
        return
    if kind == "flipped bytes":
        for place in rng.sample(range(len(data)), min(len(data), 8)):
            data[place] ^= rng.randrange(1, 256)
    elif kind == "random bytes":
        data = bytearray(rng.randbytes(len(data)))
    elif kind in JSONS:
        data = bytearray(json.dumps(JSONS[kind]).encode())
    else:
        data = data[: rng.randrange(len(data)) if kind == "truncated" else 0]
    path.write_bytes(data)


@dataclasses.dataclass(frozen=True)
class Found:
    """How a start ended: at a step, or with a sentence; and what it reported before."""

    step: int | None
    error: str | None
    said: tuple[str, ...]


class Starter:
    """A toy run with checkpoints 4, 8 and 12, and its start as `t5x.train` does it.

    Args:
      folder: receives the run; not changed later.
    """

    def __init__(self, folder: pathlib.Path):
        self.folder, one = folder, jax.devices()[:1]
        partitioner = PjitPartitioner(devices=one)
        self.data = toy.data(batch_size=2)
        toy.train(folder, partitioner=partitioner, train_dataset_cfg=self.data, total_steps=12)
        model = toy.model()
        specs = state_specs(model, partitioner)
        self._trainer = Trainer(
            model=model,
            train_state=None,
            partitioner=partitioner,
            train_state_axes=specs,
            rng=jax.random.key(0),
            learning_rate_fn=toy.rate,
        )
        self._sound: dict[int, tuple] = {}
        for step in STEPS:
            only = folder.parent / f"only_{step}"
            shutil.copytree(folder / f"checkpoint_{step}", only / f"checkpoint_{step}")
            self._sound[step] = self._read(only)[1]

    def _read(self, folder: pathlib.Path) -> tuple[int, tuple]:
        """Start the run in a folder; return the step, and its arrays with the next batch."""
        trainer = self._trainer

        def read(start: run_start.Start) -> tuple:
            stream = open_stream(start, trainer, self.data, TrainStream, 0, total_steps=12)
            return stream, starting_state(start, trainer, jax.random.key(0))

        start = run_start.find_start(str(folder), None)
        start, (stream, state) = run_start.first_sound(start, read)
        run_start.delete_damaged_after(start)
        Checkpointer(str(folder)).close()
        arrays = [np.asarray(x) for x in jax.tree.leaves((state.params, state.param_states))]
        batch = next(stream)
        self._inputs = len(batch)
        stream.close()
        return int(state.step), (*arrays, *(batch[name] for name in sorted(batch)))

    def start(self, folder: pathlib.Path) -> Found:
        """Start a damaged copy of the run.

        Raises:
          AssertionError: it continues with other numbers or other data than were saved.
        """
        with reported() as reports:
            try:
                step, values = self._read(folder)
            except ValueError as error:  # any other is a traceback for the user
                return Found(None, str(error), tuple(reports))
        sound = self._sound[step]
        # The oldest may have lost its position on purpose, so that is only reported.
        same = len(sound) - (self._inputs if "holds no data position" in "".join(reports) else 0)
        for loaded, saved in zip(values[:same], sound[:same], strict=True):
            np.testing.assert_array_equal(loaded, saved)
        return Found(step, None, tuple(reports))


@contextlib.contextmanager
def reported() -> Iterator[list[str]]:
    """Yield the list of warnings that are logged meanwhile."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger("absl").addHandler(handler)
    try:
        yield messages
    finally:
        logging.getLogger("absl").removeHandler(handler)


def fault(
    found: Found, folder: pathlib.Path, damaged: set[int], steps: Sequence[int] = STEPS
) -> str | None:
    """Return what is wrong with a start after the checkpoints of `damaged` steps were damaged.

    It must be from the newest checkpoint that can be read, name each newer one, and leave all that
    are intact. Where all are damaged, one sentence names all.
    """
    path = functools.partial(layout.step_folder, str(folder))
    intact = [step for step in steps if step not in damaged]
    if found.step is None:
        if intact:
            return f"checkpoint_{intact[-1]} is intact, and the run ended with: {found.error}"
        unnamed = [step for step in steps if path(step) not in (found.error or "")]
        if unnamed or "\n" in (found.error or ""):
            return f"checkpoints {unnamed} are not in one sentence: {found.error}"
        return None
    if intact and found.step < intact[-1]:
        return f"it started from {found.step}, although checkpoint_{intact[-1]} is intact"
    reports = "\n".join(found.said)
    unnamed = [step for step in steps if step > found.step and path(step) not in reports]
    if unnamed:
        return f"it started from {found.step} and did not name {unnamed}"
    gone = [step for step in intact if not layout.kind(path(step))]
    return f"it deleted {gone}, which are intact" if gone else None
