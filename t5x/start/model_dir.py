"""Check MODEL_DIR, describe the run in it, and compare a resumed run with that description.

The description is `model-info.txt` (parameters, optimizer, network), `labels.json`,
`inference.json` and a copy of the vocabulary. A run that resumes with another network or other
classes is refused, and one that resumes, or goes on from another run, with another vocabulary.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
import seqio
import tensorflow as tf
from etils import epath
from flax.traverse_util import flatten_dict
from sentencepiece import SentencePieceProcessor

from common import arguments, small_files, special_tokens
from common.errors import Failure, UserError, first_line
from common.source import CorpusTask, labels_of
from common.storage_wait import answer
from t5x.input_pipeline.config import DatasetConfig
from t5x.multihost import broadcast
from t5x.start.checkpoint import Start
from t5x.train_state import StateSpecs

# What can pass, so that the same command may succeed later.
_UNANSWERED = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError)
DESCRIPTION = "model-info.txt"
_LABELS, _INFERENCE = "labels.json", "inference.json"
_TOKENIZER = "tokenizer/tokenizer.json"
# Settings of a network that change neither what it computes nor what its checkpoints hold, but for
# rounding and dropout.
_NUMERICS = {"dtype", "float32_attention_logits", "attention", "remat_policy", "max_length"}
_NUMERICS |= {"dropout_rate", "attention_dropout_rate"}
_CODERS = {"inputs": "encoder", "targets": "decoder"}


def check_writable(model_dir: str, seconds: float = 30.0) -> None:
    """Check that all hosts can make and write MODEL_DIR, and leave nothing there.

    MODEL_DIR is a local folder or in a bucket. The hosts of a pod must share it; a file system may
    take `seconds` to show one host what another wrote.

    Raises:
      UserError: the folder cannot be written, or the hosts do not share it.
      Failure: it does not answer.
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
    return [str(parent) for parent in (folder, *folder.parents) if not os.path.lexists(parent)]


def _write_probe(model_dir: str, probe: str) -> None:
    remedy = "set it to a folder or bucket that you can write to"
    with _probing(model_dir, "cannot be written", remedy):
        tf.io.gfile.makedirs(model_dir)
        with tf.io.gfile.GFile(probe, "w") as file:
            file.write("")


@contextlib.contextmanager
def _probing(model_dir: str, problem: str, remedy: str) -> Iterator[None]:
    """Raise Failure for storage that may respond later, UserError for what must be changed."""
    try:
        yield
    except _UNANSWERED as error:
        raise Failure(
            "MODEL_DIR",
            model_dir,
            f"which does not answer ({first_line(error)})",
            "start the same command again, which resumes from the last checkpoint",
        ) from error
    except (tf.errors.OpError, OSError) as error:
        why = f"which {problem} ({first_line(error)})"
        raise UserError("MODEL_DIR", model_dir, why, remedy) from error


def _await_probe(model_dir: str, probe: str, seconds: float, host: int) -> None:
    end = time.monotonic() + seconds
    with _probing(model_dir, f"host {host} cannot read", "give it the rights that host 0 has"):
        while not tf.io.gfile.exists(probe):
            if time.monotonic() > end:
                raise UserError(
                    "MODEL_DIR",
                    model_dir,
                    f"which host {host} does not share with host 0, though all hosts of a pod "
                    "write one checkpoint",
                    "set it to a gs:// bucket or a folder that all of them mount",
                )
            time.sleep(0.2)


def write_description(
    model_dir: str, model: Any, specs: StateSpecs, tasks: Iterable[seqio.Task] = ()
) -> None:
    """Write, on one host, what describes a run.

    `model-info.txt` has its parameters, optimizer and network, `labels.json` the labels of the
    classes in its `tasks`, {task: {label of a class: what the model writes}}. The vocabulary is
    copied.
    """
    if jax.process_index():
        return
    flat = flatten_dict(specs.on_disk["target"], sep="/")
    lines = [f"{k:70} {v.shape!s:20} {v.sharding.spec}" for k, v in sorted(flat.items())]
    if optimizer := _optimizer(model):
        lines.append(f"optimizer: {optimizer}")
    if network := _network(model):
        lines.append(f"network: {json.dumps(network)}")
    count = sum(int(np.prod(v.shape)) for v in flat.values())
    folder = epath.Path(model_dir)
    (folder / DESCRIPTION).write_text("\n".join([*lines, f"parameters: {count:,}", ""]))
    copies = vocabulary_files(model)
    if tokenizer := copies.get(_TOKENIZER):
        (folder / _TOKENIZER).parent.mkdir(exist_ok=True)
        for name in special_tokens.FILES:
            copies[f"tokenizer/{name}"] = os.path.join(os.path.dirname(tokenizer), name)
    for name, source in copies.items():
        if epath.Path(source).exists():
            # Read completely, since the copy may be the source.
            (folder / name).write_bytes(epath.Path(source).read_bytes())
    if labels := _labels(tasks):
        text = json.dumps(labels, indent=1, ensure_ascii=False)
        (folder / _LABELS).write_text(f"{text}\n")


def vocabulary_files(model: Any) -> dict[str, str]:
    """Return the file of a model's vocabulary by the name of its copy; none for bytes."""
    files = {
        "vocabulary.model": getattr(model.output_vocabulary, "sentencepiece_model_file", None),
        _TOKENIZER: getattr(model.input_vocabulary, "tokenizer_file", None),  # an encoder's
    }
    return {name: file for name, file in files.items() if file}


def holds_run(folder: str) -> bool:
    """Return whether a folder has what `write_description` writes of a run."""
    return (epath.Path(folder) / DESCRIPTION).exists()


def write_inference(model_dir: str, evaluator: seqio.Evaluator, cfg: DatasetConfig) -> None:
    """Write `inference.json` on one host: what the tasks that are decoded say of their texts.

    {"lengths": {"inputs": 512, "targets": 64}, "prefixes": {"ro_en": "translate: "}}: the longest
    input of training and evaluation, how many ids the evaluation decodes, and what precedes the
    inputs of each task. `cfg` is training's. If nothing is decoded, nothing is written.
    """
    tasks = [task for task in evaluator.eval_tasks if task.predict_metric_fns]
    shapes = evaluator.model_feature_shapes if tasks else {}
    if jax.process_index() or "decoder_input_tokens" not in shapes:
        return
    lengths = {side: shapes[f"{coder}_input_tokens"][0] for side, coder in _CODERS.items()}
    trained = (cfg.task_feature_lengths or {}).get("inputs", 0)
    lengths["inputs"] = max(lengths["inputs"], trained)
    prefixes = {task.name: task.prefix for task in tasks if isinstance(task, CorpusTask)}
    text = json.dumps({"lengths": lengths, "prefixes": prefixes}, indent=1, ensure_ascii=False)
    (epath.Path(model_dir) / _INFERENCE).write_text(f"{text}\n")


def _labels(tasks: Iterable[seqio.Task]) -> dict[str, dict[str, str]]:
    return {task.name: dict(labels) for task in tasks if (labels := labels_of(task))}


def check_description(start: Start, model: Any, tasks: Iterable[seqio.Task]) -> None:
    """Raise UserError if the checkpoint is of another network, vocabulary or other classes."""
    check_network(start, model)
    check_vocabulary(start, model)
    check_labels(start, tasks)


def check_network(start: Start, model: Any) -> None:
    """Raise UserError if a run that resumes has another network than its checkpoints.

    Many settings have no array whose shape would show it, such as `num_heads` beside a `head_dim`
    that makes up for it, or the base of rotary positions. Its earlier checkpoints would be
    converted with the new ones.
    """
    if not start.is_own:
        return
    model_dir, _ = start.folder_and_step
    before = broadcast.broadcast_from_first(lambda: _described(model_dir, "network"))
    with small_files.parsing(epath.Path(model_dir) / DESCRIPTION, "delete it"):
        settings = dict(json.loads(before or "{}"))
    for name, value in _network(model).items():
        if settings.get(name, value) != value:
            raise UserError(
                f"{type(model.module.config).__name__}.{name}",
                value,
                f"but the run in MODEL_DIR {model_dir} was trained with {settings[name]}",
                "set it to that, or another MODEL_DIR for another model",
            )


def _network(model: Any) -> dict[str, Any]:
    """Return the settings of a network but for its numerics, as JSON holds them.

    What JSON cannot hold, such as a function, is left out: its text may have an address.
    """
    config = getattr(getattr(model, "module", None), "config", None)
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        return {}
    settings = {}
    for name in sorted({field.name for field in dataclasses.fields(config)} - _NUMERICS):
        with contextlib.suppress(TypeError, ValueError):
            settings[name] = json.loads(json.dumps(getattr(config, name)))
    return settings


def check_labels(start: Start, tasks: Iterable[seqio.Task]) -> None:
    """Raise UserError if a run that resumes has other classes in a task than `labels.json`.

    The model would write what it has learned for one label, and it would be read as another.
    """
    labels_by_task = _labels(tasks)
    if not (start.is_own and labels_by_task):
        return
    model_dir, _ = start.folder_and_step
    path = epath.Path(model_dir) / _LABELS

    def saved() -> dict[str, dict[str, str]]:
        if not path.exists():
            return {}
        with small_files.parsing(path, "delete it, and the next start writes it again"):
            return {name: dict(labels) for name, labels in small_files.read_json(path).items()}

    before = broadcast.broadcast_from_first(saved)
    named = lambda labels: ", ".join(f"{label!r} ({piece})" for label, piece in labels.items())
    for name, labels in labels_by_task.items():
        if (labels_before := before.get(name, labels)) != labels:
            raise UserError(
                f"task {name}",
                why=f"has the classes {named(labels)}, but the run in MODEL_DIR {model_dir} was "
                f"trained with {named(labels_before)}",
                to_set="set another MODEL_DIR for a new run, or the classes of that run",
            )


def check_vocabulary(start: Start, model: Any) -> None:
    """Raise UserError if the run that saved the checkpoint of `start` has another vocabulary.

    The ids of `model` would mean other texts, and a run's own checkpoints would be converted with
    the new vocabulary. Of another run's the pieces are compared, since T5's 32,000 are published
    with and without sentinels. Nothing is known if its folder has no vocabulary, and they may
    differ if its `assignment_map` says what becomes of the embeddings.
    """
    if start.path is None or (start.config and start.config.assignment_map):
        return
    folder = epath.Path(start.path).parent

    def differing() -> tuple[str, str] | None:
        for name, source in vocabulary_files(model).items():
            copy = folder / name
            if not copy.exists():
                continue
            contents = copy.read_bytes(), epath.Path(source).read_bytes()
            is_text = start.is_own or name.endswith(".json")
            if contents[0] != contents[1] and (is_text or not _agree(*contents)):
                return name, source
        return None

    if (difference := broadcast.broadcast_from_first(differing)) is None:
        return
    name, source = difference
    why = f"whose run was trained with its {name}, which differs from {source}"
    if start.is_own:
        to_set = "set another MODEL_DIR for another model, or the vocabulary of that run"
        raise UserError("MODEL_DIR", str(folder), why, to_set)
    raise UserError(
        "The checkpoint to start from",
        start.path,
        why,
        f"set the vocabulary of the model and of the task to {folder / name}, or name a run that "
        "has yours",
    )


def _agree(*models: bytes) -> bool:
    """Return whether all ids that SentencePiece models share are of the same pieces."""
    loaded = [SentencePieceProcessor(model_proto=content) for content in models]
    sizes = [processor.get_piece_size() for processor in loaded]
    pieces = [processor.id_to_piece(list(range(min(sizes)))) for processor in loaded]
    return all(other == pieces[0] for other in pieces)


def saved_by_another(path: str, model: Any) -> str | None:
    """Return why a checkpoint's optimizer state does not suit `model`; None if it may.

    Checkpoints do not name their optimizer, and some optimizers keep arrays of the same names and
    shapes. So the run's description next to the checkpoint is read. Without it, or for an optimizer
    without a name, nothing is known, and the result is None.
    """
    folder, own_name = os.fspath(epath.Path(path).parent), _optimizer(model)
    saved_name = broadcast.broadcast_from_first(lambda: _described(folder, "optimizer"))
    if None in (saved_name, own_name) or saved_name == own_name:
        return None
    return f"the saved state is of {saved_name}, not of {own_name}"


def _described(folder: str, name: str) -> str | None:
    """Return what the description of the run in a folder says of `name`, None if nothing."""
    try:
        text = (epath.Path(folder) / DESCRIPTION).read_text()
    except (tf.errors.OpError, OSError, UnicodeDecodeError):
        return None
    match = re.search(f"^{name}: (.+)$", text, re.MULTILINE)
    return match[1] if match else None


def _optimizer(model: Any) -> str | None:
    """Return the name of the model's optimizer in gin files, None for one that has no name."""
    return getattr(getattr(model.optimizer_def, "usual_rates", None), "optimizer", None)
