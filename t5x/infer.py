r"""Decodes or scores the examples of a task or a file into JSON lines, in order.

python -m t5x.infer --gin_file=gin/ro_t5x_tiny.gin --gin_file=t5x/configs/runs/infer.gin \
  --gin.CHECKPOINT_PATH='"runs/tiny/checkpoint_300"' --gin.INFER_OUTPUT_DIR='"runs/tiny_infer"' \
  --gin.models.EncoderDecoderModel.predict_batch_with_aux.num_decodes=4

With --gin.infer_script.infer.input_file='"questions.txt"' it takes the lines of that file instead
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
      path: of the file.
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
            f"write_inferences_to_file.input_fields_to_include is {fields}, but "
            "include_all_inputs is True, which writes all fields; set only one of the two."
        )

    def is_shown(name: str) -> bool:
        if fields is not None:
            return name in fields or name.removesuffix("_pretokenized") in fields
        return include_all_inputs or name.endswith("_pretokenized")

    examples = task_ds.as_numpy_iterator()
    with tf.io.gfile.GFile(path, "w") as file:
        for example, result in zip(examples, inferences, strict=True):
            shown = {k: to_json(v) for k, v in example.items() if is_shown(k)}
            line = {"inputs": shown, **result_fields(result, mode, vocabulary, output_ids)}
            file.write(json.dumps(line, ensure_ascii=False, cls=json_encoder_cls) + "\n")


def result_fields(
    result: Any, mode: str, vocabulary: Any, output_ids: bool = False
) -> dict[str, Any]:
    """Return the fields of a line that depend on the mode."""
    if mode == "score":
        return {"score": to_json(result)}
    ids, aux = result if mode == "predict_with_aux" else (result, None)
    decode = lambda row: vocabulary.decode(row.tolist())
    cut = lambda row: row[: len(row) if row.all() else int((row == 0).argmax())].tolist()
    each = lambda function: function(ids) if ids.ndim == 1 else [function(row) for row in ids]
    fields = {"prediction": each(decode)} | ({"prediction_tokens": each(cut)} if output_ids else {})
    return fields | ({} if aux is None else {"aux": jax.tree.map(to_json, aux)})


def to_json(value: Any) -> Any:
    """Return a numpy value as plain JSON."""
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
      restore_checkpoint_cfg: names one checkpoint.
      output_dir: of all files.
      checkpoint_period: batches between two saves; at most this much work is lost by a kill.
      shard_id: which share of the examples this process takes.
      num_shards: number of shares.
      merge_chunked_results: write one file at the end; False leaves a file per save.
      write_fn: (path, inferences, task dataset, mode, vocabulary), writes a line per example.
      verify_matching_vocabs_fn: (dataset cfg, model), raises if they do not fit; None for no check.
      output_vocab_feature_name: the feature whose vocabulary turns predicted ids into text.
      file_extension: of the files.
      keep_aux_as_numpy: give `write_fn` the aux values as numpy arrays instead of numbers.
      fallback_init_rng: seed for parameters that the checkpoint may lack, None for none.
      input_file: a text or .jsonl file, or '-', whose lines replace a task's examples; see
        `text_file_task.line_task`.
      input_prefix: written before each of its lines.
      length_buckets: maximum number of input lengths to compile; see `predictor.Predictor`.
      max_examples: use only so many examples of each task, the first ones; None for all.
      summarize_config_fn: (model_dir, writer, step), writes the configuration to a file.
      dry_run: build and check everything, then return without decoding.

    Returns:
      The paths of the files, one per task.

    Raises:
      UserError: a setting is wrong; raised before anything is decoded.
    """
    preconditions.check_shares(mode, shard_id, num_shards)
    notes = {"input_prefix": input_prefix, **decoding_notes(model)}
    if input_file is not None:
        dataset_cfg = with_lines(dataset_cfg, input_file, input_prefix, model, mode)
        notes["input_file"] = dataset_cfg.provider.source.fingerprint
    preconditions.check_inference(
        model, partitioner, dataset_cfg, output_dir, verify_matching_vocabs_fn
    )
    preconditions.check_output_feature(dataset_cfg, output_vocab_feature_name)
    path = one_checkpoint(restore_checkpoint_cfg)
    predictor = Predictor(model, partitioner, dataset_cfg.batch_size, length_buckets)
    restorer = ParamsRestorer(model, partitioner, restore_checkpoint_cfg, fallback_init_rng)
    preconditions.check_memory(model, restorer.specs.state.params, partitioner)
    if dry_run:
        dry_run_table.show_inference(dataset_cfg, [path], output_dir)
        return []

    log.write_to(output_dir, shard_id)
    if shard_id == 0:
        summarize_config_fn(output_dir, None, 0)
    params, _ = restorer(path)
    named = (output_vocab_feature_name, file_extension)
    notes |= {"checkpoint": path, "parameters": digest_of_all(params)}
    notes |= {"seed": dataset_cfg.seed, "split": dataset_cfg.split, "max_examples": max_examples}
    notes |= {"lengths": dict(dataset_cfg.task_feature_lengths or {})}
    notes |= {"output_vocab_feature_name": output_vocab_feature_name}
    compute = computation(mode, predictor, params, keep_aux_as_numpy)
    shard, merge = seqio.ShardInfo(shard_id, num_shards), merge_chunked_results
    files = TaskFiles(mode, write_fn, output_dir, shard, merge, notes, *named)
    converter = model.FEATURE_CONVERTER_CLS(pack=False)
    for task in dataset_cfg.tasks_with_split:
        examples = examples_of(task, dataset_cfg, converter, shard, max_examples)
        files.write(task, examples, compute, checkpoint_period * dataset_cfg.batch_size)
    files.close()
    if jax.process_index() == 0:
        files.report(dataset_cfg)
    return files.paths


def computation(
    mode: str, predictor: Predictor, params: Any, keep_aux_as_numpy: bool
) -> Callable[[Sequence[Example]], list[Any]]:
    """Return a function from features of examples to their results."""

    def compute(examples: Sequence[Example]) -> list[Any]:
        results = predictor(mode, params, examples)
        if mode != "predict_with_aux" or keep_aux_as_numpy:
            return results
        return [(ids, jax.tree.map(to_json, aux)) for ids, aux in results]

    return compute


@dataclasses.dataclass
class TaskFiles:
    """The files of results, one per task; for the arguments see `infer`."""

    mode: str
    write_fn: Callable[..., None]
    output_dir: str
    shard: seqio.ShardInfo
    merge: bool
    notes: dict[str, Any]
    vocabulary_of: str = "targets"
    extension: str = "jsonl"
    paths: list[str] = dataclasses.field(default_factory=list)
    written: list[str] = dataclasses.field(default_factory=list)  # paths or patterns
    counts: dict[str, int] = dataclasses.field(default_factory=dict)  # examples, by task
    _files: list[ResumableFile] = dataclasses.field(default_factory=list)

    def write(
        self,
        task: seqio.Task,
        dataset: tf.data.Dataset,
        compute: Callable[[Sequence[Example]], list[Any]],
        chunk_size: int,
    ) -> None:
        """Compute and write the missing results of a task in chunks; UserError for no example."""
        shard = f"{self.shard.index:05}-of-{self.shard.num_shards:05}"
        part = f"-{shard}" if self.shard.num_shards > 1 else ""
        name = f"{task.name}-{self.mode}{part}.{self.extension}"
        path = os.path.join(self.output_dir, name)
        self.paths.append(path)
        file: ResumableFile | None = None
        folder = os.path.join(self.output_dir, f"tmp-{task.name}-{self.mode}-{shard}")
        self.written.append(path if self.merge else f"{folder}/{name}-chunk*")
        if jax.process_index() == 0:
            file = ResumableFile(folder, path, self.notes)
            self._files += [file] * self.merge
        done, finished = broadcast_from_first(lambda: [file.lines, file.finished] if file else [])
        examples, seen = dataset.as_numpy_iterator(), hashlib.sha256()
        for example in itertools.islice(examples, done):
            seen.update(content_of(example))
        if file is not None:
            file.check(seen.hexdigest())
        if finished:
            return
        total, started = done, time.monotonic()
        while chunk := list(itertools.islice(examples, chunk_size)):
            for example in chunk:
                seen.update(content_of(example))
            shown, features = zip(*chunk, strict=True)
            results = compute(features)
            total += len(chunk)
            if file is not None:
                spec = dataset.element_spec[0]
                write = functools.partial(self._write_chunk, task, results, shown, spec)
                file.add(write, seen.hexdigest())
                rate = (total - done) / (time.monotonic() - started)
                print(f"{task.name}: {total:,} examples, {rate:.1f}/s", file=sys.stderr)
        if not total:
            raise UserError(
                f"Task {task.name} has no example in shard {shard} of its split "
                f"{self.notes['split']!r}; set another DatasetConfig.split or fewer "
                "infer.num_shards."
            )
        self.counts[task.name] = total
        if file is not None and self.merge:
            file.merge()
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices(f"{task.name} is done")

    def report(self, cfg: DatasetConfig) -> None:
        """Print the records that were skipped or cut, and the paths that were written."""
        for line in record_counts.summaries(cfg, self.counts):
            print(line, file=sys.stderr)
        print(f"Wrote {', '.join(self.written)}.", file=sys.stderr)

    def close(self) -> None:
        """Delete what was kept to resume, once all tasks are done."""
        for file in self._files:
            file.delete_notes()

    def _write_chunk(self, task, results, shown, spec, path: str) -> None:
        as_dataset = tf.data.Dataset.from_generator(lambda: shown, output_signature=spec)
        vocabulary = with_labels(task.output_features[self.vocabulary_of].vocabulary, task)
        self.write_fn(path, results, as_dataset, self.mode, vocabulary)


def with_labels(vocabulary: seqio.Vocabulary, task: seqio.Task) -> seqio.Vocabulary:
    """Return a vocabulary that decodes ids to the labels of a task's classes, if it has such."""
    if not hasattr(task, "labels"):
        return vocabulary
    shown = copy.copy(vocabulary)
    shown.decode = lambda ids: task.postprocess_fn(vocabulary.decode(ids))
    return shown


def examples_of(
    task: seqio.Task,
    cfg: DatasetConfig,
    converter: seqio.FeatureConverter,
    shard: seqio.ShardInfo,
    max_examples: int | None = None,
) -> tf.data.Dataset:
    """Return pairs of an example of the task and its model features, in the task's order.

    With `max_examples`, the shards share so many examples, the task's first.
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
        dataset = dataset.take(max_examples).shard(shard.num_shards, shard.index)
    model_features = converter(dataset, cfg.task_feature_lengths)
    return tf.data.Dataset.zip((dataset, model_features))


def content_of(example: Any) -> bytes:
    """Return bytes that differ for examples with other features."""
    parts = [np.asarray(leaf) for leaf in jax.tree.leaves(example)]
    as_bytes = lambda x: repr(x.tolist()).encode() if x.dtype == object else x.tobytes()
    return b"".join(f"{x.dtype}{x.shape}".encode() + as_bytes(x) for x in parts)


def with_lines(cfg: DatasetConfig, path: str, prefix: str, model: Any, mode: str) -> DatasetConfig:
    """Return `cfg` with the lines of a file as its task; warn if they are cut or lack a prefix.

    Raise UserError if the file is malformed, or has no targets to score.
    """
    vocabularies = model.input_vocabulary, model.output_vocabulary
    name = cfg.mixture_or_task_name
    known = isinstance(name, str) and name in seqio.TaskRegistry.names()
    usual_task = seqio.TaskRegistry.get(name) if known else None
    usual = getattr(usual_task, "prefix", "")
    task = text_file_task.line_task(path, *vocabularies, cfg.split, prefix, usual_task)
    first = task.source.examples[0]
    if not prefix and not first["inputs"].startswith(usual):
        print(
            f"The lines of {path} are used unchanged, but {name} writes {usual!r} before its "
            "inputs: set infer_script.infer.input_prefix to that.",
            file=sys.stderr,
        )
    if mode == "score" and "targets" not in first:
        raise UserError(
            f"infer.mode is 'score', and {path} has no targets; give a .jsonl file whose lines "
            'have "inputs" and "targets".'
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


def one_checkpoint(cfg: RestoreCheckpointConfig) -> str:
    """Return the path of the only checkpoint, or raise UserError if there are several."""
    path, *more = checkpoint_paths(cfg)
    if more and cfg.mode == "all":
        raise UserError(
            f"RestoreCheckpointConfig.mode is 'all', which names {len(more) + 1} checkpoints, and "
            "inference takes one; set it to 'specific', 'latest' or 'best'."
        )
    return path


def decoding_notes(model: Any) -> dict[str, Any]:
    """Return the settings of decoding, besides parameters and inputs, as plain JSON."""
    decode_fn: Any = inspect.unwrap(getattr(model, "decode_fn", lambda: None))
    given: dict[str, str] = {}
    while isinstance(decode_fn, functools.partial):
        mine = {f"decode_fn.{name}": repr(value) for name, value in decode_fn.keywords.items()}
        given = mine | given
        decode_fn = inspect.unwrap(decode_fn.func)
    if not hasattr(decode_fn, "__qualname__"):
        decode_fn = type(decode_fn)  # the text of an object may contain its address
    module = decode_fn.__module__

    def decodes(function: Any) -> bool:
        name = getattr(function, "__qualname__", "")
        return function.__module__ == module or name.endswith("predict_batch_with_aux")

    return settings_of(current(), decodes) | {
        "decode_fn": f"{module}.{decode_fn.__qualname__}",
        **given,
    }


if __name__ == "__main__":
    main.run(infer)
