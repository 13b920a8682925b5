r"""Decodes or scores the examples of a task or a file into JSON lines, in their order.

python -m t5x.infer --gin_file=gin/ro_t5x_tiny.gin --gin_file=t5x/configs/runs/infer.gin \
  --gin.CHECKPOINT_PATH='"runs/tiny/checkpoint_300"' --gin.INFER_OUTPUT_DIR='"runs/tiny_infer"' \
  --gin.models.EncoderDecoderModel.predict_batch_with_aux.num_decodes=4

With --gin.infer_script.infer.input_file='"questions.txt"' it takes the lines of that file instead
of a task's examples; '"-"' is standard input, and .jsonl has "inputs" and, to score, "targets".

What it leaves in INFER_OUTPUT_DIR: `<task>-<mode>.jsonl-<shard>-of-<shards>`, a line an example:
{"inputs": {"inputs_pretokenized": …, …}, "prediction": …, "score": …, "aux": {…}}, of which each
mode has its part. Killed and started again it goes on: no line is lost or there twice. What the
libraries said is in `log_<shard>.txt`.
"""

import sys

if __name__ == "__main__":  # before any library is imported
    if not __package__:  # started as `python t5x/infer.py`
        sys.path[0] = sys.path[0].removesuffix("t5x")
    from t5x.cli import log_capture

    log_capture.start()

import dataclasses
import functools
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

import gin
from t5x import gin_utils
from t5x.checkpointing.config import RestoreCheckpointConfig, checkpoint_paths
from t5x.cli import log_capture, main
from t5x.cli.gin_internals import settings_of
from t5x.inference import constrained_decoding, text_file_task
from t5x.inference import predictor as inference
from t5x.inference.resumable_jsonl import ChunkedFile
from t5x.input_pipeline import checks, corpora, record_counts
from t5x.input_pipeline.config import DatasetConfig
from t5x.loop import model_dir
from t5x.partitioning import PjitPartitioner

DECODING = "models.EncoderDecoderModel.predict_batch_with_aux"
FINISHED = -1  # in place of the number of lines that are done


def write_inferences_to_file(
    path: str,
    inferences: Sequence[Any],
    task_ds: tf.data.Dataset,
    mode: str,
    vocabulary: seqio.Vocabulary | None = None,
) -> None:
    """Writes a JSON line for each example: its `*_pretokenized` features and what came of it.

    Args:
      path: of the file.
      inferences: results of `inference.Predictor`.
      task_ds: the examples, as the task gives them.
      mode: one of `inference.MODES`.
      vocabulary: turns ids into text.
    """
    examples = task_ds.as_numpy_iterator()
    with tf.io.gfile.GFile(path, "w") as file:
        for example, result in zip(examples, inferences, strict=True):
            shown = {k: plain(v) for k, v in example.items() if k.endswith("_pretokenized")}
            line = {"inputs": shown, **fields(result, mode, vocabulary)}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def fields(result: Any, mode: str, vocabulary: seqio.Vocabulary | None) -> dict[str, Any]:
    """The fields of a line that depend on the mode."""
    if mode == "score":
        return {"score": plain(result)}
    if isinstance(result, str):
        return {"prediction": result}
    ids, aux = result if mode == "predict_with_aux" else (result, None)
    decode = lambda row: vocabulary.decode(row.tolist())
    text = decode(ids) if ids.ndim == 1 else [decode(row) for row in ids]
    return {"prediction": text} | ({} if aux is None else {"aux": jax.tree.map(plain, aux)})


def plain(value: Any) -> Any:
    """A numpy value as JSON knows it."""
    value = np.asarray(value).tolist()
    as_text = lambda v: v.decode("utf-8", "replace") if isinstance(v, bytes) else v
    return [as_text(v) for v in value] if isinstance(value, list) else as_text(value)


def infer(
    *,
    mode: str,
    model: Any,
    dataset_cfg: DatasetConfig,
    restore_checkpoint_cfg: RestoreCheckpointConfig,
    partitioner: PjitPartitioner,
    output_dir: str,
    checkpoint_period: int,
    shard_id: int = 0,
    num_shards: int = 1,
    merge_chunked_results: bool = True,
    write_fn: Callable[..., None] = write_inferences_to_file,
    checkpoint_ds_iter: bool = True,
    fallback_init_rng: int | None = None,
    input_file: str | None = None,
    input_prefix: str = "",
    constraint: Any = None,
    length_buckets: int = 4,
    summarize_config_fn: Callable[..., None] = gin_utils.summarize_gin_config,
    dry_run: bool = False,
) -> list[str]:
    """Decodes or scores each task of `dataset_cfg`.

    Args:
      mode: 'predict', 'score', or 'predict_with_aux' for predictions with their scores.
      model: see `models.EncoderDecoderModel`.
      dataset_cfg: which examples; each is taken once, in order.
      restore_checkpoint_cfg: of one checkpoint.
      partitioner: of parameters and batches over devices.
      output_dir: where everything is written.
      checkpoint_period: batches in a chunk, which is what a kill can cost.
      shard_id: which share of the examples this process takes.
      num_shards: how many shares there are.
      merge_chunked_results: make one file of the chunks; False leaves them as they are.
      write_fn: (path, inferences, task dataset, mode, vocabulary), writes a chunk, a line an
        example.
      checkpoint_ds_iter: accepted; what is done is known by counting lines.
      fallback_init_rng: seed of the parameters that the checkpoint may lack, None for none.
      input_file: a text or .jsonl file, or '-', whose lines are taken instead of a task's examples;
        see `line_task`.
      input_prefix: written before each of its lines.
      constraint: what predictions are held to: texts of some inputs to (allowed, finish), of which
        allowed(row, ids so far) gives the ids that may come next and finish(row, ids) the text. Its
        `identity`, if it has one, tells what it depends on, as plain JSON.
      length_buckets: lengths of inputs that programs are compiled for at most; see
        `inference.Predictor`.
      summarize_config_fn: (model_dir, writer, step), writes the configuration down.
      dry_run: builds and checks everything, then returns without decoding.

    Returns:
      The paths of the files, one a task.

    Raises:
      ValueError: one sentence on what does not fit, before anything is decoded.
    """
    check_numbers(mode, checkpoint_period, shard_id, num_shards)
    check_constraint(constraint, mode)
    notes = {"input_prefix": input_prefix, **decoding_notes(model, constraint)}
    if input_file is not None:
        dataset_cfg = of_lines(input_file, input_prefix, dataset_cfg, model, mode)
        notes["input_file"] = dataset_cfg.provider.source.fingerprint
    check_data(dataset_cfg, model)
    model_dir.check_writable(output_dir)
    path = one_checkpoint(restore_checkpoint_cfg)
    predictor = inference.Predictor(model, partitioner, dataset_cfg.batch_size, length_buckets)
    restorer = inference.ParamsRestorer(
        model, partitioner, restore_checkpoint_cfg, fallback_init_rng
    )
    if dry_run:
        return []

    log_capture.write_to(output_dir, shard_id)
    if shard_id == 0:
        summarize_config_fn(output_dir, None, 0)
    params, _ = restorer(path)

    job = InferenceJob(
        functools.partial(decoded, predictor, mode, params, constraint),
        mode,
        write_fn,
        output_dir,
        chunk_size=checkpoint_period * dataset_cfg.batch_size,
        shard=seqio.ShardInfo(shard_id, num_shards),
        merge=merge_chunked_results,
        notes=notes
        | {"checkpoint": path, "seed": dataset_cfg.seed, "split": dataset_cfg.split}
        | {"lengths": dict(dataset_cfg.task_feature_lengths)},
    )
    return all_tasks(job, dataset_cfg, model.FEATURE_CONVERTER_CLS(pack=False))


def all_tasks(
    job: "InferenceJob", cfg: DatasetConfig, converter: seqio.FeatureConverter
) -> list[str]:
    """Does `job` for each task of `cfg`, then says what of the data was left out; the files."""
    paths = [
        job(task, examples_of(task, cfg, converter, job.shard))
        for task in inference.tasks_with_split(cfg)
    ]
    job.close()
    if jax.process_index() == 0:
        for line in record_counts.summaries(cfg, job.decoded):
            print(line, file=sys.stderr)
    return paths


def decoded(
    predictor: inference.Predictor,
    mode: str,
    params: Any,
    constraint: Any,
    examples: Sequence[inference.Example],
    shown: Sequence[inference.Example],
) -> list[Any]:
    """Results for examples as the model takes them; `shown` are the same as the task gives them."""
    if constraint is None:
        return predictor(mode, params, examples)
    texts = [plain(one["inputs_pretokenized"]) for one in shown]
    return constrained_decoding.texts(predictor, params, examples, texts, constraint)


@dataclasses.dataclass
class InferenceJob:
    """What is done with the examples of each task; see `infer`."""

    run: Callable[[Sequence[inference.Example], Sequence[inference.Example]], list[Any]]
    mode: str
    write_fn: Callable[..., None]
    output_dir: str
    chunk_size: int
    shard: seqio.ShardInfo
    merge: bool
    notes: dict[str, Any]
    decoded: dict[str, int] = dataclasses.field(default_factory=dict)  # examples of each task
    _merged: list[ChunkedFile] = dataclasses.field(default_factory=list)

    def __call__(self, task: seqio.Task, dataset: tf.data.Dataset) -> str:
        """Decodes or scores what of a task is not done yet; returns the path of its file.

        Raises:
          ValueError: there is no example.
        """
        shard = f"{self.shard.index:05}-of-{self.shard.num_shards:05}"
        path = os.path.join(self.output_dir, f"{task.name}-{self.mode}.jsonl-{shard}")
        output, done = None, np.int64(0)
        if jax.process_index() == 0:
            folder = os.path.join(self.output_dir, f"tmp-{task.name}-{self.mode}-{shard}")
            output = ChunkedFile(folder, path, self.notes)
            done = np.int64(FINISHED if output.finished else output.lines)
            self._merged += [output] * self.merge
        done = int(multihost_utils.broadcast_one_to_all(done))
        if done == FINISHED:
            return path
        total, started = done, time.monotonic()
        examples = dataset.skip(done).as_numpy_iterator()
        while chunk := list(itertools.islice(examples, self.chunk_size)):
            shown, features = zip(*chunk, strict=True)
            results = self.run(features, shown)
            total += len(chunk)
            if output is not None:
                spec = dataset.element_spec[0]
                output.add(functools.partial(self._write, task, results, shown, spec))
                rate = (total - done) / (time.monotonic() - started)
                print(f"{task.name}: {total:,} examples, {rate:.1f}/s", file=sys.stderr)
        if not total:
            raise ValueError(
                f"Task {task.name} has no example in shard {shard} of its split "
                f"{self.notes['split']!r}; set another DatasetConfig.split or fewer "
                "infer.num_shards."
            )
        self.decoded[task.name] = total
        if output is not None and self.merge:
            output.merge()
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices(f"{task.name} is done")
        return path

    def close(self) -> None:
        """Forgets what finished files were made with: all tasks are done."""
        for output in self._merged:
            output.forget()

    def _write(self, task, results, shown, spec, path: str) -> None:
        as_dataset = tf.data.Dataset.from_generator(lambda: shown, output_signature=spec)
        vocabulary = task.output_features["targets"].vocabulary
        self.write_fn(path, results, as_dataset, self.mode, vocabulary)


def examples_of(
    task: seqio.Task,
    cfg: DatasetConfig,
    converter: seqio.FeatureConverter,
    shard: seqio.ShardInfo,
) -> tf.data.Dataset:
    """Pairs of an example as the task gives it and as the model takes it, in the task's order."""
    dataset = task.get_dataset(
        sequence_length=cfg.task_feature_lengths,
        split=cfg.split,
        shuffle=False,
        num_epochs=1,
        shard_info=shard,
        use_cached=cfg.use_cached,
        seed=cfg.seed,
        trim_output_features=cfg.trim_output_features,
    )
    model_features = converter(dataset, task_feature_lengths=cfg.task_feature_lengths)
    return tf.data.Dataset.zip((dataset, model_features))


def of_lines(path: str, prefix: str, cfg: DatasetConfig, model: Any, mode: str) -> DatasetConfig:
    """`cfg` with the lines of a file in place of its task; says how many will be cut.

    Raises:
      ValueError: the file is not as `line_task` wants it, or has no targets to score.
    """
    vocabularies = model.input_vocabulary, model.output_vocabulary
    task = text_file_task.line_task(path, *vocabularies, cfg.split, prefix)
    if usual := missing_prefix(cfg, task, prefix):
        print(
            f"The lines of {path} go in as they stand, but {cfg.mixture_or_task_name} writes "
            f"{usual!r} before its inputs: set infer_script.infer.input_prefix to that.",
            file=sys.stderr,
        )
    if mode == "score" and "targets" not in task.source.examples[0]:
        raise ValueError(
            f"infer.mode is 'score', and {path} has no targets; give a .jsonl file whose lines "
            'have "inputs" and "targets".'
        )
    cfg = dataclasses.replace(cfg, mixture_or_task_name=task, module=None, use_cached=False)
    checks.feature_shapes(cfg)
    if long := text_file_task.longer_than(task, dict(cfg.task_feature_lengths), prefix):
        print(
            f"{len(long)} lines of {path} have more tokens than TASK_FEATURE_LENGTHS "
            f"{dict(cfg.task_feature_lengths)} and are cut, line {long[0]} the first.",
            file=sys.stderr,
        )
    return cfg


def missing_prefix(cfg: DatasetConfig, lines: seqio.Task, prefix: str) -> str:
    """What the task of `cfg` writes before its inputs, where these lines lack it; else nothing."""
    name = cfg.mixture_or_task_name
    known = isinstance(name, str) and name in seqio.TaskRegistry.names()
    usual = getattr(seqio.TaskRegistry.get(name), "prefix", "") if known else ""
    there = prefix or lines.source.examples[0]["inputs"].startswith(usual)
    return "" if there else usual


def check_data(cfg: DatasetConfig, model: Any) -> None:
    """Refuses, with a ValueError, what cannot be read or does not fit the model."""
    checks.verify_matching_vocabs(cfg, model)
    checks.feature_shapes(cfg)
    inference.tasks_with_split(cfg)
    corpora.check_corpora(cfg)
    inference.check_decoding(model)


def one_checkpoint(cfg: RestoreCheckpointConfig) -> str:
    """The only checkpoint that is named, or a ValueError."""
    path, *more = checkpoint_paths(cfg)
    if more and cfg.mode == "all":
        raise ValueError(
            f"RestoreCheckpointConfig.mode is 'all', which names {len(more) + 1} checkpoints, and "
            "inference takes one; set it to 'specific', 'latest' or 'best'."
        )
    return path


def check_constraint(constraint: Any, mode: str) -> None:
    """Refuses, with a ValueError, to hold scores, or several hosts, to a constraint."""
    if constraint is not None and mode != "predict":
        raise ValueError(
            f"infer.mode is {mode!r}, and a constraint holds predictions only; set INFER_MODE to "
            "'predict', or infer.constraint to None."
        )
    if constraint is not None and jax.process_count() > 1:
        raise ValueError(
            "Constrained decoding runs on one host, and these are "
            f"{jax.process_count()}; set infer.constraint to None, or start it on one."
        )


def decoding_notes(model: Any, constraint: Any) -> dict[str, Any]:
    """What decoding depends on beside parameters and inputs, as plain JSON.

    A constraint that has an `identity` is asked for it; of another is known that there is one.
    """
    decode_fn, given = inspect.unwrap(getattr(model, "decode_fn", None)), {}
    while isinstance(decode_fn, functools.partial):
        mine = {f"decode_fn.{name}": repr(value) for name, value in decode_fn.keywords.items()}
        given = mine | given
        decode_fn = inspect.unwrap(decode_fn.func)
    if not hasattr(decode_fn, "__qualname__"):
        decode_fn = type(decode_fn)  # what its own texts hold, an address say, tells nothing
    module = decode_fn.__module__

    def decodes(function: Any) -> bool:
        name = getattr(function, "__qualname__", "")
        return function.__module__ == module or name.endswith("predict_batch_with_aux")

    identity = getattr(constraint, "identity", lambda: constraint is not None)
    return settings_of(decodes) | {
        "num_decodes": num_decodes(),
        "decode_fn": f"{module}.{decode_fn.__qualname__}",
        **given,
        "constraint": identity(),
    }


def num_decodes() -> int:
    """How many beams or samples the configuration asks for."""
    try:
        return gin.query_parameter(f"{DECODING}.num_decodes")
    except ValueError:  # it does not say
        return 1


def check_numbers(mode: str, checkpoint_period: int, shard_id: int, num_shards: int) -> None:
    """Refuses a mode or a number that is none.

    Raises:
      ValueError: says which, and what it may be.
    """
    if mode not in inference.MODES:
        raise ValueError(f"infer.mode is {mode!r}; set INFER_MODE to one of {inference.MODES}.")
    if checkpoint_period < 1:
        raise ValueError(
            f"infer.checkpoint_period is {checkpoint_period}; set it to at least 1 batch."
        )
    if not 0 <= shard_id < num_shards:
        raise ValueError(
            f"infer.shard_id is {shard_id} and infer.num_shards {num_shards}; shards are numbered "
            f"from 0, so set infer.shard_id below infer.num_shards."
        )


if __name__ == "__main__":
    main.run(infer)
