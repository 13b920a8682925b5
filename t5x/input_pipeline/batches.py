"""Batches of ids from seqio: the training stream, whose position is saved, and evaluation sets.

  stream = TrainStream(cfg, model.FEATURE_CONVERTER_CLS, rows=host_rows(partitioner, 128), seed=0)
  batch = next(stream)                # {'encoder_input_tokens': int32 [rows, I], …} of this host
  stream.save(folder); stream.restore(folder)

A global batch consists of virtual shards: each has its own pipeline over its own share of the
corpus and fills its own rows. Their number is chosen when a run begins (`SHARDS`, or one a host if
there are more hosts) and saved with its position. A host runs the shards whose rows its devices
need; if hosts outnumber shards, several run the same shard and each takes its own rows of it. So
the batch at step n, and a saved position, do not depend on the number of hosts.
"""

import dataclasses
import functools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import seqio
import tensorflow as tf
from absl import logging

from t5x.array_types import HostBatch
from t5x.checkpointing.lazy_array import parsing
from t5x.input_pipeline import encoder_rows, record_counts
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.corpora import identities, orders, pin_orders, resumable_source
from t5x.input_pipeline.encoder_rows import EncoderFeatureConverter
from t5x.input_pipeline.packing import ConvertedRows, RowBuilder
from t5x.input_pipeline.shard_iterator import TRUNCATED, ShardIterator
from t5x.partitioning import PjitPartitioner

SHARDS = 8  # virtual shards if they divide the batch; a power of two
CHUNK = 64  # examples that a pipeline yields at once, since each time costs the switch of a thread
AHEAD = 2  # chunks prefetched, so that no shard waits while another reads; the position has them
READ_AT_ONCE = 16  # shards that move to a saved position at the same time; each takes memory
STANDARD = seqio.EncDecFeatureConverter  # whose rows `RowBuilder` makes, with its own defaults


def global_shapes(rows: HostBatch, batch_size: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shapes of a global batch; `rows` are any number of its rows."""
    struct = lambda x: jax.ShapeDtypeStruct((batch_size, *x.shape[1:]), x.dtype)
    return {name: struct(x) for name, x in rows.items()}


def host_rows(partitioner: PjitPartitioner, batch_size: int) -> tuple[int, int]:
    """Return the first row and the end of the rows of a global batch on this host's devices."""
    indices = partitioner.batch_sharding.addressable_devices_indices_map((batch_size,)).values()
    bounds = [index[0].indices(batch_size) for index in indices if index is not None]
    return min(b[0] for b in bounds), max(b[1] for b in bounds)


def saves_rows(partitioner: PjitPartitioner, batch_size: int) -> bool:
    """Return whether this host is the first of those with its rows, which share a replica."""
    first, _ = host_rows(partitioner, batch_size)
    indices = partitioner.batch_sharding.devices_indices_map((batch_size,)).items()
    mine = [device for device, index in indices if index[0].indices(batch_size)[0] == first]
    return jax.process_index() == min(getattr(device, "process_index") for device in mine)  # noqa: B009 (unknown to mypy)


def shard_count(batch_size: int, rows: tuple[int, int]) -> int:
    """Return the number of virtual shards of a new run.

    It divides the batch and is a multiple of hosts, so that no host makes rows for another.
    """
    hosts = max(1, batch_size // (rows[1] - rows[0]))
    return math.lcm(math.gcd(batch_size, SHARDS), hosts)


def shards_of(
    cfg: DatasetConfig,
    converter_cls: Callable[..., seqio.FeatureConverter],
    indices: Sequence[int],
    count: int,
    seed: int | None,
    size: int,
    num_workers: int | None = None,
) -> list[ShardIterator]:
    """Return the endless streams of some of `count` virtual shards, `size` rows per take."""
    make = functools.partial(_examples, cfg, converter_cls, seed=seed, size=size)
    made = [make(seqio.ShardInfo(index, count)) for index in indices]
    options = tf.data.Options()
    if num_workers is not None:
        options.threading.private_threadpool_size = num_workers
    return [
        ShardIterator(dataset.prefetch(AHEAD).with_options(options), rows, size)
        for dataset, rows in made
    ]


def _examples(
    cfg: DatasetConfig,
    converter_cls: Callable[..., seqio.FeatureConverter],
    info: seqio.ShardInfo,
    seed: int | None,
    size: int,
) -> tuple[tf.data.Dataset, RowBuilder | ConvertedRows]:
    """Return the examples of one virtual shard, many at a time, and what makes rows of them."""
    settings: dict[str, Any] = {"use_cached": cfg.use_cached, "shuffle": cfg.shuffle}
    settings |= {"num_epochs": None, "shard_info": info, "seed": seed}
    lengths = cfg.task_feature_lengths
    converter = converter_cls(pack=cfg.pack)
    encodes = isinstance(converter, EncoderFeatureConverter)
    if not encodes and (converter_cls is not STANDARD or lengths is None):
        settings |= {"dataset_split": cfg.split, "feature_converter": converter, "verbose": False}
        settings["trim_output_features"] = cfg.trim_output_features
        dataset = seqio.get_dataset(cfg.provider, lengths, **settings).batch(size)
        none = lambda spec: np.zeros([0, *spec.shape[1:]], spec.dtype.as_numpy_dtype)
        return dataset, ConvertedRows({k: none(spec) for k, spec in dataset.element_spec.items()})
    rows: RowBuilder
    settings["trim_output_features"] = False  # `_padded` trims, and counts
    dataset = cfg.provider.get_dataset(lengths, split=cfg.split, **settings)
    if encodes:
        dataset, rows = encoder_rows.begin(dataset, cfg.provider.name, lengths, cfg.pack)
        lengths = rows.lengths
    else:
        assert lengths is not None
        rows = RowBuilder(lengths, cfg.pack)
    return _padded(cfg, dataset, {name: lengths[name] for name in rows.features}), rows


def _padded(
    cfg: DatasetConfig, dataset: tf.data.Dataset, lengths: Mapping[str, int]
) -> tf.data.Dataset:
    """Return batches {"inputs": int32 [n, I], "targets": int32 [n, T], …} of `CHUNK` examples."""
    spec = dataset.element_spec
    for name in lengths:
        if name not in spec or spec[name].dtype != tf.int32 or spec[name].shape.rank != 1:
            raise ValueError(
                f"{cfg.provider.name} gives {name!r} as {spec.get(name)}, but the model reads "
                "int32 [n]; the last of the task's preprocessors must return it so."
            )

    def trimmed(batch):
        cut = [tf.reduce_any(batch[k][:, n:] != 0, 1) for k, n in lengths.items()]
        if not cfg.trim_output_features:
            message = (
                f"an example of {cfg.provider.name} is longer than TASK_FEATURE_LENGTHS allows"
            )
            tf.debugging.assert_equal(tf.reduce_any(cut), False, message=message)
        short = {k: tf.pad(batch[k], [[0, 0], [0, n]])[:, :n] for k, n in lengths.items()}
        return {**short, TRUNCATED: tf.reduce_any(cut, 0)}

    # Once per batch: a call per example would cost more than making the example.
    as_is = tf.autograph.experimental.do_not_convert  # they have no branches to convert
    if set(spec) != set(lengths):
        dataset = dataset.map(as_is(lambda x: {k: x[k] for k in lengths}), synchronous=True)
    dataset = dataset.padded_batch(CHUNK, {k: [None] for k in lengths})
    return dataset.map(as_is(trimmed), synchronous=True)


class TrainStream(Iterator[HostBatch]):
    """The endless batches of one host, with a position to save.

    Args:
      cfg: the examples.
      converter_cls: seqio feature converter of the model.
      rows: first and end row of this host, see `host_rows`.
      seed: of this run.
      shards: virtual shards of a new run, default as many as `shard_count` says; `restore` replaces
        it by the number that was saved.
      num_workers: threads that prepare data, at least one per virtual shard; default all cores.
    """

    def __init__(
        self,
        cfg: DatasetConfig,
        converter_cls: Callable[..., seqio.FeatureConverter],
        rows: tuple[int, int],
        seed: int,
        shards: int | None = None,
        num_workers: int | None = None,
    ):
        self.cfg, self.seed, self.rows = cfg, seed, rows
        self._converter_cls = converter_cls
        self._num_workers = num_workers
        self._make_shards(shards or shard_count(cfg.batch_size, rows))
        self.global_batch = global_shapes(self._shards[0].nothing, cfg.batch_size)
        self._given = 0
        self.interrupted: Callable[[], bool] = lambda: False  # ends a wait for data
        self.saves = True  # whether `save` writes anything, see `saves_rows`

    def _make_shards(self, count: int) -> None:
        """Make those of `count` virtual shards that have rows of this host."""
        size, (first, end) = self.cfg.batch_size // count, self.rows
        self.count, self.indices = count, range(first // size, -(-end // size))
        start = self.indices[0] * size
        self._mine = slice(first - start, end - start)  # of the rows of these shards
        # The host with a shard's first row counts its records and saves its position.
        self._owned = [index * size >= first for index in self.indices]
        num_workers = self._num_workers
        if num_workers is not None:
            num_workers = max(1, num_workers // len(self.indices))
        self._orders = orders(self.cfg)
        self._shards = shards_of(
            self.cfg, self._converter_cls, self.indices, count, self.seed, size, num_workers
        )

    def start(self) -> None:
        """Start making the next batch in threads, unless they already do."""
        for shard in self._shards:
            shard.start()

    def __next__(self) -> HostBatch:
        self.start()
        while not self.wait(1.0):
            if self.interrupted():
                raise StopIteration
        taken = [shard.take() for shard in self._shards]
        parts = [part for part in taken if part is not None]
        if len(parts) < len(taken):
            raise self._at_end(self.indices[taken.index(None)])
        self._given += 1
        return {k: np.concatenate([p[k] for p in parts])[self._mine] for k in parts[0]}

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the next batch is there or has failed; return False after `seconds`."""
        deadline = time.monotonic() + (seconds or 0.0)
        left = lambda: None if seconds is None else max(0.0, deadline - time.monotonic())
        return all(shard.wait(left()) for shard in self._shards)

    def check(self) -> None:
        """Raise the error of the next batch, if it has one already, as `next` does."""
        for shard in self._shards:
            shard.check()

    def _at_end(self, shard: int) -> ValueError:
        name = self.cfg.provider.name
        if self._given:
            return ValueError(
                f"{name} ends after {self._given} batches (of split {self.cfg.split!r}, shard "
                f"{shard} of {self.count}), because its corpora are not repeated; lower "
                "TRAIN_STEPS or repeat them for more epochs."
            )
        return ValueError(
            f"{name} has no example of split {self.cfg.split!r} in shard {shard} of "
            f"{self.count}: the corpus is too small for so many shards, or its documents are "
            "skipped; set DatasetConfig.mixture_or_task_name to a larger one."
        )

    def counts(self) -> dict[str, dict[str, int]]:
        """Return this process's record counts since its start: {task: {name: count}}.

        A host that only takes rows of shards that others save counts none, so that
        `sum_over_hosts` is right. One that has both kinds counts both: then it is an upper bound.
        """
        counts = {
            task.name: source.record_counts(self.cfg.split)
            for task in seqio.get_subtasks(self.cfg.provider)
            if (source := resumable_source(task))
        }
        if counts:
            counts.setdefault(self.cfg.provider.name, {})[TRUNCATED] = self._truncated
        if not any(self._owned):
            none = lambda name, n: n if name == "epochs" else 0
            counts = {t: {k: none(k, n) for k, n in found.items()} for t, found in counts.items()}
        return counts

    @property
    def _truncated(self) -> int:
        return sum(shard.truncated for shard in self._shards)

    def data_summary(self) -> list[str]:
        """Return a line per task on what was read, skipped and cut, each record counted once."""
        return record_counts.summaries(self.cfg, truncated=self._truncated)

    def save(self, folder: str) -> None:
        """Write the position of every shard whose first row is this host's into `folder`.

        Of hosts with the same rows only one may write: their positions are equal, but not their
        files, which hold what each has prefetched.
        """
        if not self.saves:
            return
        tf.io.gfile.makedirs(folder)
        for index, shard, owned in zip(self.indices, self._shards, self._owned, strict=True):
            if owned:
                shard.write(self._path(folder, index))
        if self.rows[0] == 0:
            about: dict[str, Any] = {"seed": self.seed, "shards": self.count}
            about |= {"batch_size": self.cfg.batch_size, "orders": self._orders}
            about |= {**_row_settings(self.cfg), "corpora": identities(self.cfg)}
            with tf.io.gfile.GFile(f"{folder}/stream.json", "w") as file:
                file.write(json.dumps(about))

    def restore(self, folder: str) -> None:
        """Move to the position saved in `folder`, on any number of hosts.

        Raises:
          ValueError: its shards do not divide this batch size, or it was saved for rows of other
            lengths or packing, for another corpus, by another pipeline, or by another trainer.
          DamagedCheckpoint: its files are missing or cut off.
        """
        saved = saved_stream(folder)
        remedy = (
            "set SaveCheckpointConfig.save_dataset=False (for another run's checkpoint, "
            "RestoreCheckpointConfig.restore_dataset=False) to start the corpus over."
        )
        if saved is None:
            raise ValueError(f"{folder} holds no position that this trainer saved; {remedy}")
        if unfit := misfit(saved, self.cfg):
            raise ValueError(f"{folder} {unfit}, or {remedy}")
        for name, now in identities(self.cfg).items():
            # Of a task that is new in a mixture nothing was saved; its pipeline is refused below.
            if (before := saved["corpora"].get(name, now)) != now:
                raise ValueError(
                    f"{folder} holds a data position in the corpus of {name}, which has changed "
                    f"from {before} to {now}; restore its files, or {remedy}"
                )
        pin_orders(self.cfg, saved)
        if saved["shards"] != self.count or orders(self.cfg) != self._orders:
            self.close()
            self._make_shards(saved["shards"])
        self._report_change(saved)
        # Several at a time, since each shard finds its place by reading its corpus.
        errors: list[BaseException] = []
        for first in range(0, len(self._shards), READ_AT_ONCE):
            some = slice(first, first + READ_AT_ONCE)
            for index, shard in zip(self.indices[some], self._shards[some], strict=True):
                shard.begin_read(self._path(folder, index))
            errors += [error for shard in self._shards[some] if (error := shard.end_read())]
        for error in errors:
            if isinstance(error, tf.errors.OpError | AssertionError | KeyError):
                logging.info("%s", error)
                raise ValueError(
                    f"{folder} holds the data position of a different pipeline than "
                    f"{self.cfg.provider.name} has; set another MODEL_DIR for another task, run "
                    f"the code and the task that saved it, or {remedy}"
                ) from error
            raise error

    def _report_change(self, saved: Mapping[str, Any]) -> None:
        """Log what differs from the run that saved the position, and what it costs."""
        now, before = self.cfg.batch_size, saved["batch_size"]
        if now != before:
            logging.info(
                "The batch size has changed from %d to %d rows: the data continues where it was, "
                "with %d rows of each of its %d virtual shards in a batch.",
                *(before, now, now // self.count, self.count),
            )
        if not all(self._owned):
            hosts = now // (self.rows[1] - self.rows[0])
            logging.warning(
                "The %d virtual shards of this run are read by %d hosts, so several hosts make "
                "the rows of the same shard and each takes its own: preparing data is no faster "
                "than on %d hosts.",
                *(self.count, hosts, self.count),
            )

    def _path(self, folder: str, index: int) -> str:
        return f"{folder}/train_ds-{index:03d}-of-{self.count:03d}"

    def close(self) -> None:
        """Make no more batches; the pipelines stay idle until the process ends."""
        for shard in self._shards:
            shard.close()


def saved_stream(folder: str | None) -> dict[str, Any] | None:
    """Return seed, shards and corpora saved in a checkpoint's dataset folder, None without one.

    Raise DamagedCheckpoint for what is cut off, or of another form.
    """
    path = f"{folder}/stream.json"
    if folder is None or not tf.io.gfile.exists(path):
        return None
    with parsing(path):
        if tf.io.gfile.isdir(path):
            raise IsADirectoryError("it is a folder")
        with tf.io.gfile.GFile(path) as file:
            saved = dict(json.loads(file.read()))
        if not (isinstance(saved["seed"], int) and range(saved["shards"])):
            raise ValueError("its seed or shards are no numbers")
        return saved


def _row_settings(cfg: DatasetConfig) -> dict[str, Any]:
    """Return what decides the rows that a position holds, by the name of its setting."""
    lengths = cfg.task_feature_lengths
    return {"TASK_FEATURE_LENGTHS": None if lengths is None else dict(lengths), "pack": cfg.pack}


def misfit(saved: Mapping[str, Any], cfg: DatasetConfig) -> str | None:
    """Return why the position in `saved` cannot fill batches, as a predicate; None if it can."""
    for name, now in _row_settings(cfg).items():
        if (before := saved[name]) != now:
            return (
                f"holds the position of rows made with {name} = {before}, and it is {now} now; "
                f"set it to {before}"
            )
    shards, batch_size = saved["shards"], cfg.batch_size
    if batch_size % shards == 0:
        return None
    return (
        f"holds the position of {shards} virtual shards, which cannot fill a batch of {batch_size} "
        f"rows in equal parts; set BATCH_SIZE to a multiple of {shards} (it was "
        f"{saved['batch_size']})"
    )


def eval_sets(
    cfg: DatasetConfig,
    converter_cls: Callable[..., seqio.FeatureConverter],
    rows: tuple[int, int],
    eval_steps: int,
) -> dict[str, list[HostBatch]]:
    """Return `eval_steps` batches of each task, this host's rows; a small split is repeated."""
    sets = {}
    for task in seqio.get_subtasks(cfg.provider):
        measured = task.for_evaluation() if hasattr(task, "for_evaluation") else task
        one = dataclasses.replace(cfg, mixture_or_task_name=measured, module=None)
        if cfg.split not in (task.splits or ()):
            logging.warning("Task %s has no split %r; it is not evaluated.", task.name, cfg.split)
            continue
        started = time.monotonic()
        # One shard, read by every host: the split is small, and its shards would be repeated.
        seed = 0 if cfg.seed is None else cfg.seed
        stream = TrainStream(one, converter_cls, (0, cfg.batch_size), seed, shards=1)
        complete = [next(stream) for _ in range(eval_steps)]
        sets[task.name] = [{k: v[slice(*rows)] for k, v in batch.items()} for batch in complete]
        stream.close()
        logging.info("Read %s in %.1f s.", task.name, time.monotonic() - started)
    return sets
