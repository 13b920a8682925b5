"""MODEL_DIR: is it writable, which checkpoint does the run start from, what describes the run."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np
import tensorflow as tf
from absl import logging
from flax.traverse_util import flatten_dict

from common import arguments
from common.storage_wait import answer
from t5x.checkpointing import layout
from t5x.checkpointing.config import RestoreCheckpointConfig, checkpoint_paths
from t5x.checkpointing.lazy_array import DamagedCheckpoint, parsing
from t5x.multihost import broadcast
from t5x.train_state import StateSpecs

T = TypeVar("T")
# What can pass, so that the same command may succeed later.
_UNANSWERED = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError)
_DESCRIPTION = "model-info.txt"
_FIRST_STEP = "first_step.json"


@dataclasses.dataclass(frozen=True)
class Start:
    """The checkpoint a run starts from."""

    path: str | None  # None to start from scratch
    config: RestoreCheckpointConfig | None  # of another run's checkpoint; None for the run's own
    has_position: bool = True  # whether the run's own checkpoints hold a data position
    passed: tuple[str, ...] = ()  # why newer checkpoints of the run were skipped, a sentence each

    @property
    def is_own(self) -> bool:
        """Whether this run saved the checkpoint itself."""
        return self.path is not None and self.config is None

    @property
    def known_step(self) -> int | None:
        """The step at which training starts, None if the checkpoint's name does not show it."""
        return layout.step_of(self.path) if self.path else 0

    @property
    def step(self) -> int:
        """The step in the checkpoint's name, else 0."""
        return self.known_step or 0

    @property
    def foreign_step(self) -> int:
        """The step of another run's checkpoint, from which training counts on; else 0."""
        return self.step if self.config else 0

    @property
    def dataset_folder(self) -> str | None:
        """The folder of the data position, None to start the corpus over."""
        wanted = self.config.restore_dataset if self.config else self.has_position
        return layout.dataset_folder(self.path) if self.path and wanted else None

    def check_data_position(self) -> None:
        """Raise DamagedCheckpoint, on all hosts, if the data position is not as saved."""

        def damage() -> str | None:
            try:
                if self.is_own and self.has_position:
                    layout.check_position(*_own_checkpoint(self))
                elif self.dataset_folder:
                    layout.check_checksums(self.dataset_folder)
            except DamagedCheckpoint as error:
                return str(error)
            return None

        if found := broadcast.broadcast_from_first(damage):
            raise DamagedCheckpoint(found)


def check_writable(model_dir: str, seconds: float = 30.0) -> None:
    """Check that all hosts can make and write MODEL_DIR, and leave nothing there.

    It is local or in a bucket; in a pod the same for all hosts. A file system may take `seconds` to
    show one host what another wrote. Raise ValueError if nothing can be written there, or the hosts
    of a pod do not share it; RuntimeError if it does not answer.
    """
    arguments.check_address("MODEL_DIR", model_dir)
    what = f"MODEL_DIR {model_dir}"
    name = broadcast.broadcast_from_first(lambda: uuid.uuid4().hex)
    host = jax.process_index()
    probe = f"{model_dir.rstrip('/')}/.probe-{name}"
    absent = _absent_folders(model_dir) if host == 0 else []
    try:
        broadcast.broadcast_from_first(lambda: answer(what, lambda: _write_probe(model_dir, probe)))
        broadcast.raise_together(
            lambda: answer(what, lambda: _await_probe(model_dir, probe, seconds, host)),
            *(ValueError, RuntimeError),
        )
    finally:
        if host == 0:
            with contextlib.suppress(tf.errors.OpError, OSError):  # the cause was raised above
                tf.io.gfile.remove(probe)
            with contextlib.suppress(OSError):  # another run may have begun to write there
                for folder in absent:
                    os.rmdir(folder)


def _absent_folders(path: str) -> list[str]:
    """Return the folders that making `path` on a disk makes, the innermost first."""
    if "://" in path:
        return []
    folder = pathlib.Path(path).absolute()
    return [str(each) for each in (folder, *folder.parents) if not os.path.lexists(each)]


def _write_probe(model_dir: str, probe: str) -> None:
    remedy = "set it to a folder or bucket that you can write to."
    with _probing(model_dir, "cannot be written", remedy):
        tf.io.gfile.makedirs(model_dir)
        with tf.io.gfile.GFile(probe, "w") as file:
            file.write("")


@contextlib.contextmanager
def _probing(model_dir: str, problem: str, remedy: str) -> Iterator[None]:
    """Raise RuntimeError for storage that may answer later, ValueError for what must be changed."""
    which = f"MODEL_DIR is {model_dir}, which"
    try:
        yield
    except _UNANSWERED as error:
        raise RuntimeError(
            f"{which} does not answer ({str(error).splitlines()[0]}); start the same command "
            "again, which resumes from the last checkpoint."
        ) from error
    except (tf.errors.OpError, OSError) as error:
        raise ValueError(f"{which} {problem} ({str(error).splitlines()[0]}); {remedy}") from error


def _await_probe(model_dir: str, probe: str, seconds: float, host: int) -> None:
    end = time.monotonic() + seconds
    with _probing(model_dir, f"host {host} cannot read", "give it the rights that host 0 has."):
        while not tf.io.gfile.exists(probe):
            if time.monotonic() > end:
                raise ValueError(
                    f"MODEL_DIR is {model_dir}, which host {host} does not share with host 0, "
                    "though all hosts of a pod write one checkpoint; set it to a gs:// bucket or "
                    "a folder that all of them mount."
                )
            time.sleep(0.2)


def find_start(
    model_dir: str, restore: RestoreCheckpointConfig | None, has_position: bool = True
) -> Start:
    """Return the start of a run: a checkpoint or step 0.

    1. From the newest complete checkpoint in `model_dir`, which is this run's own.
    2. From the checkpoint that `restore` names.
    3. From scratch.

    Raise ValueError if `restore` names no checkpoint that exists, or several; DamagedCheckpoint,
    which names all, if all of the run's own have lost what makes them complete.
    """
    own, passed = broadcast.broadcast_from_first(
        lambda: answer(f"MODEL_DIR {model_dir}", lambda: _newest(model_dir, None))
    )
    if own:
        for reason in passed:
            logging.warning("%s Resuming from %s instead.", reason, own)
        return Start(own, None, has_position, tuple(passed))
    if passed:
        raise _all_damaged(model_dir, passed)
    if restore is not None and restore.path:
        if restore.mode == "all":
            raise ValueError(
                "RestoreCheckpointConfig.mode is 'all', which names many checkpoints, and training "
                "starts from one; set it to 'specific' or 'latest'."
            )
        if restore.dtype not in (None, "float32"):
            raise ValueError(
                f"RestoreCheckpointConfig.dtype is {restore.dtype!r}, and training keeps its "
                "parameters in float32; set it to 'float32', and network.T5Config.dtype to the "
                "dtype of computations."
            )
        named = f"RestoreCheckpointConfig.path {restore.path}"
        find = lambda: answer(named, lambda: checkpoint_paths(restore))[0]
        return Start(broadcast.broadcast_from_first(find), restore)
    return Start(None, None)


def first_sound(start: Start, read: Callable[[Start], T]) -> tuple[Start, T]:
    """Return the first start that `read` can read, from `start` to older ones, and its result.

    `read` raises DamagedCheckpoint on all hosts or on none. Raise it if there is no start: it names
    all checkpoints of the run, or the one of another run.
    """
    while True:
        try:
            return start, read(start)
        except DamagedCheckpoint as damage:
            start = earlier_start(start, damage)


def last_step(
    model_dir: str,
    total_steps: int,
    relative_steps: int | None,
    restore: RestoreCheckpointConfig | None,
) -> int:
    """Return the step at which a run ends: `total_steps`, or `relative_steps` after its first.

    Upstream counts `relative_steps` from the newest checkpoint, so a run that is resumed gets
    longer. Here they count from the checkpoint of `restore`, or from 0; where that was looked for,
    a run that resumes counts from the one that was found, see `record_first_step`. Raise ValueError
    if its name does not say its step, or it has to be looked for and does not exist.
    """
    if not relative_steps:
        return total_steps
    if restore is None or not restore.path:
        return relative_steps
    return broadcast.broadcast_from_first(lambda: _first_step(model_dir, restore)) + relative_steps


def record_first_step(model_dir: str, step: int) -> None:
    """Write the step that a run's `relative_steps` count from; other hosts write nothing.

    The run that it started from may have trained on by the time it resumes, or be gone.
    """
    if jax.process_index() == 0:
        with tf.io.gfile.GFile(os.path.join(model_dir, _FIRST_STEP), "w") as file:
            file.write(json.dumps({"step": step}))


def _first_step(model_dir: str, restore: RestoreCheckpointConfig) -> int:
    """Return what `record_first_step` wrote for a run that resumes, else the step of `restore`."""
    path, record = restore.path, os.path.join(model_dir, _FIRST_STEP)
    if restore.mode != "specific" or not isinstance(path, str) or layout.step_of(path) is None:
        if layout.latest_step(model_dir) is not None and tf.io.gfile.exists(record):
            with parsing(record), tf.io.gfile.GFile(record) as file:
                return int(json.loads(file.read())["step"])
        path = checkpoint_paths(restore)[0]
    first = layout.step_of(path)  # of a run that resumes it may be gone
    if first is None:
        raise ValueError(
            f"train.relative_steps is set, but the name of {path} does not say its step; rename it "
            "to checkpoint_<step>, or set TRAIN_STEPS and leave relative_steps at None."
        )
    return first


def earlier_start(start: Start, damage: DamagedCheckpoint) -> Start:
    """Return the start from the checkpoint before a damaged one.

    Raise DamagedCheckpoint, which names all, if there is none; `damage` for another run's.
    """
    if not start.is_own:
        raise damage
    folder, damaged = _own_checkpoint(start)
    own, older = broadcast.broadcast_from_first(lambda: _newest(folder, damaged))
    passed = [str(damage), *older]
    if not own:
        raise _all_damaged(folder, [*start.passed, *passed]) from damage
    for reason in passed:
        logging.warning("%s Resuming from %s instead.", reason, own)
    return dataclasses.replace(start, path=own, passed=(*start.passed, *passed))


def _newest(model_dir: str, before: int | None) -> tuple[str | None, list[str]]:
    """Return the newest complete checkpoint, or None, and why newer ones are not complete."""
    complete, damaged = layout.all_steps(model_dir), layout.damaged_steps(model_dir)
    if before is not None:
        complete, damaged = ([s for s in steps if s < before] for steps in (complete, damaged))
    found = complete[-1] if complete else None
    passed = [layout.step_folder(model_dir, s) for s in damaged if found is None or s > found]
    reasons = [layout.why_no_checkpoint(path) for path in reversed(passed)]
    return None if found is None else layout.step_folder(model_dir, found), reasons


def _all_damaged(model_dir: str, reasons: list[str]) -> DamagedCheckpoint:
    """Return the error for a run all of whose checkpoints are damaged, as `reasons` say."""
    if len(reasons) == 1:
        return DamagedCheckpoint(
            f"{reasons[0]} It is the only one of this run: remove it, and the same command starts "
            "over."
        )
    found = ", and ".join(re.sub(r"; restore (another|an earlier).*|\.$", "", r) for r in reasons)
    return DamagedCheckpoint(
        f"All {len(reasons)} checkpoints in {model_dir} are damaged: {found}; put one back from a "
        "copy, or remove them, and the same command starts over."
    )


def delete_damaged_after(start: Start) -> None:
    """Delete the run's checkpoints after `start`, which were found damaged.

    Call it only when `start` was read completely: then the storage was reachable, so what seemed
    damage was damage.
    """
    if not start.is_own or jax.process_index():
        return
    model_dir, intact = _own_checkpoint(start)
    for step in layout.all_steps(model_dir):
        if step > intact:
            folder = layout.step_folder(model_dir, step)
            logging.warning("Deleting %s, which is damaged.", folder)
            layout.remove(folder)


def _own_checkpoint(start: Start) -> tuple[str, int]:
    """Return folder and step of a checkpoint that the run saved, and therefore named, itself."""
    assert start.path is not None
    assert start.known_step is not None
    return os.path.dirname(start.path), start.known_step


def write_description(model_dir: str, model: Any, specs: StateSpecs) -> None:
    """Write `model-info.txt` and a copy of the vocabulary, on one host."""
    if jax.process_index():
        return
    flat = flatten_dict(specs.on_disk["target"], sep="/")
    lines = [f"{k:70} {v.shape!s:20} {v.sharding.spec}" for k, v in sorted(flat.items())]
    if optimizer := _optimizer(model):
        lines.append(f"optimizer: {optimizer}")
    count = sum(int(np.prod(v.shape)) for v in flat.values())
    with tf.io.gfile.GFile(os.path.join(model_dir, _DESCRIPTION), "w") as file:
        file.write("\n".join([*lines, f"parameters: {count:,}", ""]))
    source = getattr(model.output_vocabulary, "sentencepiece_model_file", None)
    if source:
        _copy(source, os.path.join(model_dir, "vocabulary.model"))
    if tokenizer := getattr(model.input_vocabulary, "tokenizer_file", None):  # an encoder's
        folder = os.path.join(model_dir, "tokenizer")
        tf.io.gfile.makedirs(folder)
        _copy(tokenizer, os.path.join(folder, "tokenizer.json"))
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            if tf.io.gfile.exists(beside := os.path.join(os.path.dirname(tokenizer), name)):
                _copy(beside, os.path.join(folder, name))


def check_vocabulary(start: Start, model: Any) -> None:
    """Raise ValueError if a run that resumes has another vocabulary than `model`.

    Its ids would be other texts, and its checkpoints be converted with the new vocabulary.
    """
    if not start.is_own:
        return
    model_dir, _ = _own_checkpoint(start)

    def differing() -> str | None:
        kinds = (
            ("vocabulary.model", model.output_vocabulary, "sentencepiece_model_file"),
            ("tokenizer/tokenizer.json", model.input_vocabulary, "tokenizer_file"),
        )
        for name, vocabulary, file in kinds:
            copy, source = os.path.join(model_dir, name), getattr(vocabulary, file, None)
            if source and tf.io.gfile.exists(copy) and _content(copy) != _content(source):
                return f"{name}, which differs from {source}"
        return None

    if found := broadcast.broadcast_from_first(differing):
        raise ValueError(
            f"the run in MODEL_DIR {model_dir} was trained with its {found}: set another MODEL_DIR "
            "for another model, or the vocabulary of that run"
        )


def saved_by_another(path: str, model: Any) -> str | None:
    """Return why a checkpoint's optimizer state does not suit `model`, by its run's description.

    Checkpoints do not name their optimizer, and some optimizers keep arrays of the same names and
    shapes. None for the same optimizer, and where one of the two is unknown: without the file
    beside the checkpoint, in upstream's, or for an optimizer without a name.
    """
    beside = os.path.join(os.path.dirname(path.rstrip("/")), _DESCRIPTION)

    def optimizer_there() -> str | None:
        try:
            with tf.io.gfile.GFile(beside) as file:
                found = re.search(r"^optimizer: (\S+)$", file.read(), re.MULTILINE)
        except (tf.errors.OpError, OSError, UnicodeDecodeError):
            return None
        return found[1] if found else None

    there, here = broadcast.broadcast_from_first(optimizer_there), _optimizer(model)
    if None in (there, here) or there == here:
        return None
    return f"the saved state is of {there}, not of {here}"


def _optimizer(model: Any) -> str | None:
    """Return the name of the model's optimizer in gin files, None for one that has no name."""
    return getattr(getattr(model.optimizer_def, "usual_rates", None), "optimizer", None)


def _copy(source: str, target: str) -> None:
    content = _content(source)  # completely, since the copy may be the source
    with tf.io.gfile.GFile(target, "wb") as copy:
        copy.write(content)


def _content(path: str) -> bytes:
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read()
