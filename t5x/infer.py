r"""Decodes or scores the examples of a task or a file into JSON lines, in order.

python -m t5x.infer --gin_file=gin/ro_t5x_tiny.gin --gin_file=t5x/configs/runs/infer.gin \
  --gin.CHECKPOINT_PATH='"runs/tiny/checkpoint_300"' --gin.INFER_OUTPUT_DIR='"runs/tiny_infer"' \
  --gin.models.EncoderDecoderModel.predict_batch_with_aux.num_decodes=4

With --gin.infer_script.infer.input_file='"questions.txt"' it reads the lines of that file instead
of a task's examples; '"-"' is standard input. A .jsonl file has "inputs" and, to score, "targets".

INFER_OUTPUT_DIR then has `<task>-<mode>.jsonl`, or with num_shards above 1
`<task>-<mode>-<shard>-of-<shards>.jsonl`, one line per example:
{"inputs": {"inputs_pretokenized": …, …}, "prediction": …, "score": …, "aux": {…}}; the mode decides
which of the last three. If the process is killed, the same command resumes, without missing or
repeated lines. The libraries' output is in `log_<shard>.txt`.
"""

import sys

if __name__ == "__main__":  # before any library is imported
    if not __package__:  # started as `python t5x/infer.py`
        sys.path[0] = sys.path[0].removesuffix("t5x")
    from common import log

    log.start()

import copy
import dataclasses
import functools
import hashlib
import inspect
import itertools
import json
import operator
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import seqio
import tensorflow as tf
from jax.experimental import multihost_utils

from common import log
from common.errors import UserError
from common.source import CorpusTask, labels_of
from common.tables import counted
from t5x import gin_utils
from t5x.checkpointing.config import RestoreCheckpointConfig, checkpoint_paths
from t5x.checkpointing.restore import digest_of_all
from t5x.cli import dry_run as dry_run_table
from t5x.cli import main
from t5x.inference import text_file_task
from t5x.inference.params import ParamsRestorer
from t5x.inference.predictor import Example, Predictor
from t5x.inference.resumable_jsonl import ResumableFile
from t5x.input_pipeline import record_counts
from t5x.input_pipeline.config import DatasetConfig
from t5x.models import EncoderDecoderModel
from t5x.multihost.broadcast import broadcast_from_first
from t5x.partitioning import PjitPartitioner
from t5x.settings.configuration import current, settings_of
from t5x.start import preconditions
from t5x.start.vocabulary import check_feature_lengths, verify_matching_vocabs


def write_inferences_to_file(
    path: str,
    inferences: Sequence[Any],
    task_ds: tf.data.Dataset,
    mode: str,
    vocabulary: seqio.Vocabulary | None = None,
    json_encoder_cls: type[json.JSONEncoder] = json.JSONEncoder,
    include_all_inputs: bool = False,
    input_fields_to_include: Sequence[str] | None = None,
    output_ids: bool = False,
) -> None:
    """Write a JSON line for each example: its `*_pretokenized` features and its result.

    Args:
      path: where to write the file.
      inferences: results of `predictor.Predictor`.
      task_ds: the examples, as the task yields them.
      mode: one of `predictor.MODES`.
      vocabulary: turns ids into text.
      json_encoder_cls: encodes a line, a dict of plain values.
      include_all_inputs: write all features of an example.
      input_fields_to_include: write these features and their `*_pretokenized`; None for all
        `*_pretokenized`.
      output_ids: write the predicted ids before padding too, as `prediction_tokens`.

    Raises:
      UserError: both `include_all_inputs` and `input_fields_to_include` are set.
    """
    fields = input_fields_to_include
    if include_all_inputs and fields is not None:
        raise UserError(
            "write_inferences_to_file.input_fields_to_include",
            fields,
            "but include_all_inputs is True, which writes all fields",
            "set only one of the two",
        )

    def is_written(name: str) -> bool:
        if fields is not None:
            return name in fields or name.removesuffix("_pretokenized") in fields
        return include_all_inputs or name.endswith("_pretokenized")

    examples = task_ds.as_numpy_iterator()
    with tf.io.gfile.GFile(path, "w") as file:
        for example, result in zip(examples, inferences, strict=True):
            inputs = {k: to_json(v) for k, v in example.items() if is_written(k)}
            line = {"inputs": inputs, **result_fields(result, mode, vocabulary, output_ids)}
            file.write(json.dumps(line, ensure_ascii=False, cls=json_encoder_cls) + "\n")


def result_fields(
    result: Any, mode: str, vocabulary: Any, output_ids: bool = False
) -> dict[str, Any]:
    """Return the fields of a line that `mode` decides: prediction, score, aux."""
    if mode == "score":
        return {"score": to_json(result)}
    ids, aux = result if mode == "predict_with_aux" else (result, None)
    decode = lambda row: vocabulary.decode(row.tolist())
    cut = lambda row: row[: len(row) if row.all() else int((row == 0).argmax())].tolist()
    rows = lambda function: function(ids) if ids.ndim == 1 else [function(row) for row in ids]
    fields = {"prediction": rows(decode)} | ({"prediction_tokens": rows(cut)} if output_ids else {})
    return fields | ({} if aux is None else {"aux": jax.tree.map(to_json, aux)})


def to_json(value: Any) -> Any:
    """Return a numpy value as JSON holds it."""
    value = np.asarray(value).tolist()
    as_text = lambda v: v.decode("utf-8", "replace") if isinstance(v, bytes) else v
    return [as_text(v) for v in value] if isinstance(value, list) else as_text(value)


def infer(
    *,
    mode: str,
    model: EncoderDecoderModel,
    dataset_cfg: DatasetConfig,
    restore_checkpoint_cfg: RestoreCheckpointConfig,
    partitioner: PjitPartitioner,
    output_dir: str,
    checkpoint_period: int,
    shard_id: int = 0,
    num_shards: int = 1,
    merge_chunked_results: bool = True,
    write_fn: Callable[..., None] = write_inferences_to_file,
    verify_matching_vocabs_fn: Callable[..., None] | None = verify_matching_vocabs,
    output_vocab_feature_name: str = "targets",
    file_extension: str = "jsonl",
    keep_aux_as_numpy: bool = False,
    fallback_init_rng: int | None = None,
    input_file: str | None = None,
    input_prefix: str = "",
    length_buckets: int = 4,
    max_examples: int | None = None,
    summarize_config_fn: Callable[..., None] = gin_utils.summarize_gin_config,
    dry_run: bool = False,
) -> list[str]:
    """Decode or score each task of `dataset_cfg`.

    Args:
      mode: 'predict', 'score', or 'predict_with_aux' for predictions with their scores.
      dataset_cfg: which examples; each is used once, in order.
      restore_checkpoint_cfg: the one checkpoint to restore.
      output_dir: the folder of all files.
      checkpoint_period: batches between two saves; at most this much work is lost by a kill.
      shard_id: which share of the examples this process takes.
      num_shards: number of shares.
      merge_chunked_results: write one file at the end; False leaves a file per save.
      write_fn: (path, inferences, task dataset, mode, vocabulary), writes a line per example.
      verify_matching_vocabs_fn: (dataset cfg, model), raises if they do not fit; None for no check.
      output_vocab_feature_name: the feature whose vocabulary turns predicted ids into text.
      file_extension: of the files.
      keep_aux_as_numpy: give `write_fn` the aux values as numpy arrays instead of numbers.
      fallback_init_rng: seed for parameters that the checkpoint lacks; None to refuse it.
      input_file: a text or .jsonl file, or '-', whose lines replace a task's examples; see
        `text_file_task.line_task`.
      input_prefix: written before each of its lines.
      length_buckets: maximum number of input lengths to compile; see `predictor.Predictor`.
      max_examples: use only so many examples of each task, drawn evenly from its split, which is
        read once more for that, and always the same ones; None for all.
      summarize_config_fn: (model_dir, writer, step), writes the configuration to a file.
      dry_run: build and check everything, then return without decoding.

    Returns:
      The paths of the files, one per task.

    Raises:
      UserError: a setting is wrong; raised before anything is decoded.
    """
    preconditions.check_shares(mode, shard_id, num_shards)
    if input_file is not None:
        dataset_cfg = replace_task_by_lines(dataset_cfg, input_file, input_prefix, model, mode)
    preconditions.check_inference(
        model, partitioner, dataset_cfg, output_dir, verify_matching_vocabs_fn
    )
    preconditions.check_output_feature(dataset_cfg, output_vocab_feature_name)
    checkpoint = single_checkpoint(restore_checkpoint_cfg)
    predictor = Predictor(model, partitioner, dataset_cfg.batch_size, length_buckets)
    restorer = ParamsRestorer(model, partitioner, restore_checkpoint_cfg, fallback_init_rng)
    preconditions.check_memory(model, restorer.specs.state.params, partitioner)
    if dry_run:
        dry_run_table.show_inference(dataset_cfg, [checkpoint], output_dir)
        return []

    log.write_to(output_dir, shard_id)
    if shard_id == 0:
        summarize_config_fn(output_dir, None, 0)
    params, _ = restorer(checkpoint)
    notes = {  # all that the lines depend on, apart from the examples
        "checkpoint": checkpoint,
        "parameters": digest_of_all(params),
        "seed": dataset_cfg.seed,
        "split": dataset_cfg.split,
        "max_examples": max_examples,
        "lengths": dict(dataset_cfg.task_feature_lengths or {}),
        "output_vocab_feature_name": output_vocab_feature_name,
        "input_prefix": input_prefix,
        **decoding_notes(model),
        **settings_of(current(), functools.partial(operator.is_, inspect.unwrap(write_fn))),
    }
    if input_file is not None:
        notes["input_file"] = dataset_cfg.provider.source.fingerprint

    def compute(features: Sequence[Example]) -> list[Any]:
        results = predictor(mode, params, features)
        if mode != "predict_with_aux" or keep_aux_as_numpy:
            return results
        return [(ids, jax.tree.map(to_json, aux)) for ids, aux in results]

    shard = seqio.ShardInfo(shard_id, num_shards)
    converter = model.FEATURE_CONVERTER_CLS(pack=False)
    chunk_size = checkpoint_period * dataset_cfg.batch_size
    paths, files, counts = [], [], {}
    for task in dataset_cfg.tasks_with_split:
        path, file = open_file(output_dir, f"{task.name}-{mode}", file_extension, shard, notes)
        dataset = examples_of(task, dataset_cfg, converter, shard, max_examples)
        write = writer(task, dataset, write_fn, mode, output_vocab_feature_name)
        count = write_missing(task.name, file, dataset, compute, write, chunk_size)
        if count == 0:
            raise UserError(
                f"Task {task.name}",
                why=f"has no example in shard {shard_id:05}-of-{num_shards:05} of its split "
                f"{dataset_cfg.split!r}",
                to_set="set another DatasetConfig.split or fewer infer.num_shards",
            )
        if count is not None:
            counts[task.name] = count
            if file and merge_chunked_results:
                file.merge()
            if jax.process_count() > 1:
                multihost_utils.sync_global_devices(f"{task.name} is done")
        paths.append(path)
        files += [file] if file else []
    if jax.process_index() == 0:
        for file in files if merge_chunked_results else ():
            file.delete_notes()
        for line in record_counts.summaries(dataset_cfg, counts):
            print(line, file=sys.stderr)
        outputs = paths if merge_chunked_results else [f"{file.stem}-chunk*" for file in files]
        print(f"Wrote {', '.join(outputs)}.", file=sys.stderr)
    return paths


def open_file(
    output_dir: str, name: str, extension: str, shard: seqio.ShardInfo, notes: dict[str, Any]
) -> tuple[str, ResumableFile | None]:
    """Return the path of a task's results and, on the first process only, the file."""
    label = f"{shard.index:05}-of-{shard.num_shards:05}"
    part = f"-{label}" if shard.num_shards > 1 else ""
    path = os.path.join(output_dir, f"{name}{part}.{extension}")
    folder = os.path.join(output_dir, f"tmp-{name}-{label}")
    return path, None if jax.process_index() else ResumableFile(folder, path, notes)


def writer(
    task: seqio.Task, dataset: tf.data.Dataset, write_fn: Callable[..., None], mode: str, name: str
) -> Callable[[Sequence[Example], Sequence[Any], str], None]:
    """Return a function of examples, results and a path, which calls `write_fn`.

    `name` is the feature whose vocabulary decodes the results. Nothing is predicted for the empty
    lines of a file.
    """
    vocabulary = labelled_vocabulary(task.output_features[name].vocabulary, task)
    of_lines = isinstance(task.source, text_file_task.LineSource) and mode != "score"

    def of_line(example: Example, result: Any) -> Any:
        is_empty = not to_json(example["inputs_pretokenized"]).strip()
        return jax.tree.map(np.zeros_like, result) if is_empty else result  # zeros are no text

    def write(examples: Sequence[Example], results: Sequence[Any], path: str) -> None:
        if of_lines:
            results = [of_line(*pair) for pair in zip(examples, results, strict=True)]
        rows = tf.data.Dataset.from_generator(
            lambda: examples, output_signature=dataset.element_spec[0]
        )
        write_fn(path, results, rows, mode, vocabulary)

    return write


def write_missing(
    name: str,
    file: ResumableFile | None,
    dataset: tf.data.Dataset,
    compute: Callable[[Sequence[Example]], list[Any]],
    write: Callable[[Sequence[Example], Sequence[Any], str], None],
    chunk_size: int,
) -> int | None:
    """Compute and write the lines that a file lacks, in chunks.

    Only the first process has a file; all others compute with it.

    Args:
      name: of the task, for the progress.
      dataset: pairs of an example and its features; see `examples_of`.
      compute: features -> results.
      write: (examples, results, path).
      chunk_size: examples in a chunk, which is kept if the process is killed.

    Returns:
      The number of examples, or None if the file is finished.

    Raises:
      UserError: the file's lines were made of other examples.
    """
    start, is_finished = broadcast_from_first(lambda: [file.lines, file.finished] if file else [])
    pairs, digest = dataset.as_numpy_iterator(), hashlib.sha256()
    for pair in itertools.islice(pairs, start):
        digest.update(content(pair))
    if file is not None:
        file.check(digest.hexdigest())
    if is_finished:
        return None
    total, started = start, time.monotonic()
    while chunk := list(itertools.islice(pairs, chunk_size)):
        for pair in chunk:
            digest.update(content(pair))
        examples, features = zip(*chunk, strict=True)
        results = compute(features)
        total += len(chunk)
        if file is not None:
            file.add(functools.partial(write, examples, results), digest.hexdigest())
            rate = (total - start) / (time.monotonic() - started)
            print(f"{name}: {total:,} examples, {rate:.1f}/s", file=sys.stderr)
    return total


def labelled_vocabulary(vocabulary: seqio.Vocabulary, task: seqio.Task) -> seqio.Vocabulary:
    """Return a vocabulary that decodes ids to the labels of the task's classes, if it has any."""
    if not labels_of(task):
        return vocabulary
    labelled = copy.copy(vocabulary)
    labelled.decode = lambda ids: task.postprocess_fn(vocabulary.decode(ids))
    return labelled


def examples_of(
    task: seqio.Task,
    cfg: DatasetConfig,
    converter: seqio.FeatureConverter,
    shard: seqio.ShardInfo,
    max_examples: int | None = None,
) -> tf.data.Dataset:
    """Return pairs of an example of the task and its model features, in the task's order.

    With `max_examples`, the shards share so many examples, drawn from all of them.
    """
    dataset = task.get_dataset(
        sequence_length=cfg.task_feature_lengths,
        split=cfg.split,
        shuffle=False,
        num_epochs=1,
        shard_info=shard if max_examples is None else None,
        use_cached=cfg.use_cached,
        seed=cfg.seed,
        trim_output_features=cfg.trim_output_features,
    )
    if max_examples is not None:
        dataset = draw(dataset, max_examples).shard(shard.num_shards, shard.index)
    model_features = converter(dataset, cfg.task_feature_lengths)
    return tf.data.Dataset.zip((dataset, model_features))


def draw(dataset: tf.data.Dataset, most: int) -> tf.data.Dataset:
    """Return at most so many examples, drawn evenly from all and in their order."""
    size = int(dataset.reduce(np.int64(0), lambda n, _: n + 1))
    is_drawn = np.zeros([size], bool)
    is_drawn[np.random.default_rng(0).choice(size, min(most, size), replace=False)] = True
    numbered = dataset.enumerate().filter(lambda i, _: tf.gather(is_drawn, i))
    return numbered.map(lambda _, example: example)


def content(example: Any) -> bytes:
    """Return bytes that are equal for equal examples only."""
    parts = [np.asarray(leaf) for leaf in jax.tree.leaves(example)]
    as_bytes = lambda x: repr(x.tolist()).encode() if x.dtype == object else x.tobytes()
    return b"".join(f"{x.dtype}{x.shape}".encode() + as_bytes(x) for x in parts)


def replace_task_by_lines(
    cfg: DatasetConfig, path: str, prefix: str, model: Any, mode: str
) -> DatasetConfig:
    """Return `cfg` with the lines of a file as its task.

    Warn if lines are cut or lack the prefix of the task that `cfg` names. Raise UserError if the
    file is malformed, or lacks the targets to score.
    """
    vocabularies = model.input_vocabulary, model.output_vocabulary
    name = cfg.mixture_or_task_name
    is_registered = isinstance(name, str) and name in seqio.TaskRegistry.names()
    trained_task = seqio.TaskRegistry.get(name) if is_registered else None
    trained_prefix = trained_task.prefix if isinstance(trained_task, CorpusTask) else ""
    task = text_file_task.line_task(path, *vocabularies, cfg.split, prefix, trained_task)
    first = task.source.examples[0]
    if not prefix and not first["inputs"].startswith(trained_prefix):
        print(
            f"The lines of {path} are used unchanged, but {name} writes {trained_prefix!r} before "
            "its inputs: set infer_script.infer.input_prefix to that.",
            file=sys.stderr,
        )
    if mode == "score" and "targets" not in first:
        raise UserError(
            "infer.mode",
            mode,
            f"and {path} has no targets",
            'give a .jsonl file whose lines have "inputs" and "targets"',
        )
    cfg = dataclasses.replace(cfg, mixture_or_task_name=task, module=None, use_cached=False)
    check_feature_lengths(cfg)
    lengths = dict(cfg.task_feature_lengths or {})
    if long := text_file_task.longer_than(task, lengths, prefix):
        print(
            f"{counted(len(long), 'line')} of {path} {'have' if long[1:] else 'has'} more tokens "
            f"than TASK_FEATURE_LENGTHS {lengths} and {'are' if long[1:] else 'is'} cut: "
            f"{'the first is ' if long[1:] else ''}line {long[0]}.",
            file=sys.stderr,
        )
    return cfg


def single_checkpoint(cfg: RestoreCheckpointConfig) -> str:
    """Return the path of the only checkpoint, or raise UserError if there are several."""
    path, *more = checkpoint_paths(cfg)
    if more and cfg.mode == "all":
        raise UserError(
            "RestoreCheckpointConfig.mode",
            cfg.mode,
            f"which names {len(more) + 1} checkpoints, and inference takes one",
            "set it to 'specific', 'latest' or 'best'",
        )
    return path


def decoding_notes(model: Any) -> dict[str, Any]:
    """Return the settings of decoding, apart from parameters and inputs, as JSON holds them.

    Those of the network are among them, since its dtype and attention change scores and ids.
    """
    decode_fn: Any = inspect.unwrap(getattr(model, "decode_fn", lambda: None))
    arguments: dict[str, str] = {}
    while isinstance(decode_fn, functools.partial):
        inner = {f"decode_fn.{name}": repr(value) for name, value in decode_fn.keywords.items()}
        arguments = inner | arguments
        decode_fn = inspect.unwrap(decode_fn.func)
    if not hasattr(decode_fn, "__qualname__"):
        decode_fn = type(decode_fn)  # an object's text may contain its address
    module = decode_fn.__module__
    network = type(getattr(getattr(model, "module", None), "config", None))

    def decodes(function: Any) -> bool:
        name = getattr(function, "__qualname__", "")
        is_decoding = function.__module__ == module or name.endswith("predict_batch_with_aux")
        return is_decoding or function is network

    return settings_of(current(), decodes) | {
        "decode_fn": f"{module}.{decode_fn.__qualname__}",
        **arguments,
    }


if __name__ == "__main__":
    main.run(infer)
