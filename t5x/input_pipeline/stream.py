"""The training batches of one host, as a stream that saves its position; and evaluation batches.

  stream = TrainStream(cfg, model.FEATURE_CONVERTER_CLS, rows=partitioner.host_rows(128), seed=0)
  batch = next(stream)                # {'encoder_input_tokens': int32 [rows, I], …} of this host
  stream.save(folder); stream.restore(folder)

The rows of a global batch are divided among virtual shards. Each shard reads its own share of the
corpus and makes its own rows from it: examples → rows → batch. `shard_count` chooses the number of
shards when a run begins, and a saved position keeps it. A host runs the shards whose rows its
devices need. If there are more hosts than shards, several hosts run the same shard, and each takes
its own rows of it. So the batch at step n, and a saved position, do not depend on the number of
hosts:

    batch of 8 rows, 4 shards      rows 0 1 | 2 3 | 4 5 | 6 7     shard 0 | 1 | 2 | 3
    2 hosts                        the first runs shards 0 and 1, the second 2 and 3
    8 hosts                        hosts 0 and 1 both run shard 0; each takes one row of it

`eval_sets` makes the batches that measure the loss. Every host reads all of them, as one shard,
and keeps its own rows. They have no position.
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import seqio
import tensorflow as tf
from absl import logging

from common.errors import UserError
from common.source import CorpusTask
from common.waiting import waiting
from t5x.array_types import HostBatch
from t5x.input_pipeline import mixed, position, record_counts
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.corpora import Corpora
from t5x.input_pipeline.encoder_rows import EncoderFeatureConverter, EncoderRows
from t5x.input_pipeline.packing import ConvertedRows, PairRows, Rows
from t5x.input_pipeline.shard import Shard

SHARDS = 8  # virtual shards if they divide the batch; a power of two
AHEAD = 2  # chunks prefetched, so that no shard waits while another reads; the position has them
READ_AT_ONCE = 16  # shards that move to a saved position at the same time; each takes memory


def shard_count(batch_size: int, hosts: int) -> int:
    """Return the number of virtual shards of a new run, whose hosts have rows of their own.

    It divides the batch and is a multiple of hosts, so that no host makes rows for another.
    """
    return math.lcm(math.gcd(batch_size, SHARDS), hosts)


def examples_and_rows(
    cfg: DatasetConfig,
    converter_cls: Any,
    shard: seqio.ShardInfo,
    seed: int | None,
    names: Sequence[str],
    num_epochs: int | None = None,
) -> tuple[mixed.MixedExamples, Rows]:
    """Return the examples of a virtual shard, many at a time, and what makes rows of them.

    They are endless unless `num_epochs` says how often its corpora are read.
    `names` are of its pipelines, see `mixed.names_of`. Rows of T5 and of encoders are made here;
    rows of another `converter_cls`, a seqio feature converter or a function that makes one, are
    made by it.
    """
    settings = {
        "sequence_length": cfg.task_feature_lengths,
        "split": cfg.split,
        "use_cached": cfg.use_cached,
        "shuffle": cfg.shuffle,
        "seed": seed,
        "shard_info": shard,
        "num_epochs": num_epochs,
        "trim_output_features": False,  # rows do it, and count
    }
    provider = cfg.provider
    datasets = {
        name: provider.get_dataset(**settings)
        if name == provider.name
        else provider.part_dataset(name, **settings)
        for name in names
    }
    lengths, trim = cfg.task_feature_lengths or {}, cfg.trim_output_features
    task, spec = provider.name, datasets[names[0]].element_spec
    rows: Rows
    if converter_cls is seqio.EncDecFeatureConverter:
        rows = PairRows(lengths, cfg.pack, trim, task, cfg.open_rows)
    elif isinstance(converter_cls, type) and issubclass(converter_cls, EncoderFeatureConverter):
        rows = EncoderRows(spec, lengths, cfg.pack, trim, task)
    else:
        rows = ConvertedRows(converter_cls(pack=cfg.pack), lengths, trim)
    chunks = {name: rows.examples(made).prefetch(AHEAD) for name, made in datasets.items()}
    phases = mixed.phases_of(provider)
    return mixed.MixedExamples(chunks, phases, (seed, shard.index), rows.filler), rows


class TrainStream(Iterator[HostBatch]):
    """The endless batches of one host, with a position to save.

    Args:
      cfg: the examples.
      converter_cls: seqio feature converter of the model.
      rows: first and end row of this host, see `PjitPartitioner.host_rows`.
      seed: of this run.
      shards: virtual shards of a new run, default as many as `shard_count` says; `restore` replaces
        it by the number that was saved.
    """

    def __init__(
        self,
        cfg: DatasetConfig,
        converter_cls: Callable[..., seqio.FeatureConverter],
        rows: tuple[int, int],
        seed: int,
        shards: int | None = None,
    ):
        self.cfg, self.seed, self.rows = cfg, seed, rows
        self.corpora = Corpora(cfg)
        self._converter_cls = converter_cls
        self.steps = 0  # batches since the mixture began to be read; its phases count by them
        # How the pipelines changed from an earlier mixture, None if they did not.
        self.follows: str | None = None
        self.pipelines = mixed.names_of(cfg.provider, cfg.split)  # names of each shard's pipelines
        self._make_shards(shards or shard_count(cfg.batch_size, self._hosts))
        struct = lambda x: jax.ShapeDtypeStruct((cfg.batch_size, *x.shape[1:]), x.dtype)
        self.global_batch = {name: struct(x) for name, x in self._shards[0].nothing.items()}
        self._batches = 0  # since the start of this process
        self._sizes: dict[str, int | None] = {}
        self.interrupted: Callable[[], bool] = lambda: False  # ends a wait for data
        self.saves = True  # whether `save` writes anything; one of several hosts with equal rows

    @property
    def _hosts(self) -> int:
        """The number of hosts with rows of their own."""
        return self.cfg.batch_size // (self.rows[1] - self.rows[0])

    def _make_shards(self, count: int) -> None:
        """Make the virtual shards, of `count`, that have rows of this host."""
        size, (first, end) = self.cfg.batch_size // count, self.rows
        self.count, self.indices = count, range(first // size, -(-end // size))
        start = self.indices[0] * size
        # This host's part of the rows of these shards.
        self._mine = slice(first - start, end - start)
        # The host with a shard's first row counts its records and saves its position.
        self._owned = [index * size >= first for index in self.indices]
        self._orders = self.corpora.orders()
        infos = [seqio.ShardInfo(index, count) for index in self.indices]
        settings = (self.cfg, self._converter_cls)
        prepared = [examples_and_rows(*settings, i, self.seed, self.pipelines) for i in infos]
        self._shards = [Shard(examples, rows, size) for examples, rows in prepared]

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
        self._batches += 1
        self.steps += 1
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

    def _at_end(self, shard: int) -> UserError:
        name, split = self.cfg.provider.name, self.cfg.split
        if self.steps:
            return UserError(
                name,
                why=f"ends after {self.steps} batches (of split {split!r}, shard {shard} of "
                f"{self.count}), because its corpora are not repeated",
                to_set="lower TRAIN_STEPS or repeat them for more epochs",
            )
        return UserError(
            name,
            why=f"has no example of split {split!r} in shard {shard} of {self.count}: the corpus "
            "is too small for so many shards, or its documents are skipped",
            to_set="set DatasetConfig.mixture_or_task_name to a larger one",
        )

    def counts(self) -> dict[str, dict[str, int]]:
        """Return this process's record counts since its start: {task: {name: count}}.

        A host that only takes rows of shards that others save counts none, so that
        `sum_over_hosts` is right. One that has both kinds counts both: then it is an upper bound.
        """
        split, sources = self.cfg.split, self.corpora.sources
        counts = {name: source.record_counts(split) for name, source in sources.items()}
        counts = {name: numbers for name, numbers in counts.items() if numbers}
        counts.setdefault(self.cfg.provider.name, {})["truncated"] = self._truncated
        if not any(self._owned):
            none = lambda name, n: n if name == "epochs" else 0
            counts = {
                t: {k: none(k, n) for k, n in numbers.items()} for t, numbers in counts.items()
            }
        return counts

    @property
    def _truncated(self) -> int:
        return sum(shard.truncated for shard in self._shards)

    def data_summary(self, trained: Mapping[str, float]) -> list[str]:
        """Return a line per task on what was read, skipped and cut; `trained` as in `epochs`."""
        epochs = self.epochs(trained)
        return record_counts.summaries(self.cfg, truncated=self._truncated, epochs=epochs)

    def epochs(self, trained: Mapping[str, float]) -> dict[str, float]:
        """Return how often each corpus was trained on, roughly, where its size is known.

        The pipelines read ahead, small corpora for several epochs, so that what they have read says
        nothing. `trained` are the `step_sums` of the steps since the start, added up. A task whose
        epochs are limited ends at its limit; what the others take over of its share is left out.
        """
        cfg, epochs = self.cfg, dict[str, float]()
        shares = mixed.task_shares(cfg.provider, self.steps - self._batches, self.steps)
        for task in cfg.tasks_with_split if self.corpora.sources else ():
            counts = self.corpora.sources[task.name].record_counts(cfg.split)
            lengths = cfg.task_feature_lengths or {}
            in_row = most = None
            if isinstance(task, CorpusTask):
                in_row, most = task.row_tokens(lengths), task.most_epochs
            tokens = record_counts.text_tokens(trained, in_row) * shares.get(task.name, 0.0)
            size = self._size(task.name)
            if size and counts.get("pieces"):
                count = tokens * counts["text_bytes"] / counts["pieces"] / size
                epochs[task.name] = min(count, most or count)
        return epochs

    def _size(self, task: str) -> int | None:
        """Return the bytes of a corpus, which the first process alone asks for, once."""
        if task not in self._sizes and jax.process_index() == 0:
            self._sizes[task] = self.corpora.sources[task].text_bytes(self.cfg.split)
        return self._sizes.get(task)

    def save(self, folder: str) -> None:
        """Write the position of every shard whose first row is this host's into `folder`.

        If several hosts have the same rows, only one may write: their positions are equal, but the
        files differ by what each host has prefetched.
        """
        if not self.saves:
            return
        tf.io.gfile.makedirs(folder)
        for index, shard, owned in zip(self.indices, self._shards, self._owned, strict=True):
            if owned:
                shard.write(self._path(folder, index))
        if self.rows[0] == 0:
            identities = self.corpora.identities()
            position.write(
                folder,
                self.cfg,
                self.seed,
                self.count,
                self._orders,
                identities,
                self.pipelines,
                self.steps,
            )

    def phases(self, step: int) -> dict[int, dict[str, float]]:
        """Return the shares of the parts by the first step of each phase, if they change.

        `step` is the run's, at which the stream now is.
        """
        phases = mixed.phases_of(self.cfg.provider)
        first_step = step - self.steps
        return (
            {first_step + first: dict(s) for first, s in phases.items()} if len(phases) > 1 else {}
        )

    def restore(self, folder: str) -> None:
        """Move to the position saved in `folder`, on any number of hosts.

        If another mixture saved it, the pipelines of the same names continue, after the examples
        that the other mixture had made.

        Raises:
          UserError: its shards do not divide this batch size, or it was saved for rows of other
            lengths or packing, for another corpus, or by another pipeline.
        """
        saved = position.saved(folder)
        remedy = (
            "set SaveCheckpointConfig.save_dataset=False (for another run's checkpoint, "
            "RestoreCheckpointConfig.restore_dataset=False) to start the corpus over"
        )
        assert saved is not None
        if misfit := position.misfit(saved, self.cfg):
            raise UserError(folder, why=misfit.why, to_set=f"{misfit.to_set}, or {remedy}")
        for name, now in self.corpora.identities().items():
            # Of a task that is new in a mixture nothing was saved; its pipeline is refused below.
            # What is read of the files is compared if the position says it.
            optional = {name: now.get(name) for name in ("reads", "held_out")}
            before = optional | saved["corpora"].get(name, now)
            if before != optional | now:
                raise UserError(
                    folder,
                    why=f"holds a data position in the corpus of {name}, which has changed from "
                    f"{before} to {now}",
                    to_set=f"restore its files, or {remedy}",
                )
        self.corpora.pin_orders(saved["orders"])
        name = self.cfg.provider.name
        held = position.pipelines(saved, name)
        names = mixed.names_of(self.cfg.provider, self.cfg.split, held)
        current = (self.count, self._orders, self.pipelines)
        if (saved["shards"], self.corpora.orders(), names) != current:
            self.close()
            self.pipelines = names
            self._make_shards(saved["shards"])
        self.steps = saved.get("steps", 0) if saved.get("mixture", name) == name else 0
        self.follows = position.changed_mixture(saved, name, self.pipelines)
        self._report_change(saved)
        for error in self._read(folder, held):
            if isinstance(error, tf.errors.OpError | AssertionError | KeyError):
                logging.info("%s", error)
                raise UserError(
                    folder,
                    why="holds the data position of a different pipeline than "
                    f"{self.cfg.provider.name} has",
                    to_set="set another MODEL_DIR for another task, run the code and the task that "
                    f"saved it, or {remedy}",
                ) from error
            raise error

    def _read(self, folder: str, held: Sequence[str]) -> list[BaseException]:
        """Move each shard to its position; return the errors of those that cannot be moved."""
        # Several at a time, since each shard finds its place by reading its corpus.
        errors: list[BaseException] = []
        for first in range(0, len(self._shards), READ_AT_ONCE):
            group = slice(first, first + READ_AT_ONCE)
            for index, shard in zip(self.indices[group], self._shards[group], strict=True):
                shard.begin_read(self._path(folder, index), held, self.steps)
            errors += [error for shard in self._shards[group] if (error := shard.end_read())]
        return errors

    def _report_change(self, saved: Mapping[str, Any]) -> None:
        """Log what differs from the run that saved the position, and what it costs."""
        now, before = self.cfg.batch_size, saved["batch_size"]
        if now != before:
            logging.info(
                "The batch size has changed from %d to %d rows: the data continues where it was, "
                "with %d rows of each of its %d virtual shards in a batch.",
                *(before, now, now // self.count, self.count),
            )
        if self.follows:
            logging.warning("%s", self.follows)
        if not all(self._owned):
            logging.warning(
                "The %d virtual shards of this run are read by %d hosts, so several hosts make "
                "the rows of the same shard and each takes its own: preparing data is no faster "
                "than on %d hosts.",
                *(self.count, self._hosts, self.count),
            )

    def _path(self, folder: str, index: int) -> str:
        return f"{folder}/train_ds-{index:03d}-of-{self.count:03d}"

    def close(self) -> None:
        """Make no more batches; the pipelines stay idle until the process ends."""
        for shard in self._shards:
            shard.close()


def eval_sets(
    cfg: DatasetConfig,
    converter_cls: Callable[..., seqio.FeatureConverter],
    rows: tuple[int, int],
    eval_steps: int,
) -> dict[str, list[HostBatch]]:
    """Return at most `eval_steps` batches of each task, this host's rows, of one pass over it.

    The last batch of a small split is filled up with rows of padding.

    Raises:
      UserError: a task has no example.
    """
    sets = {}
    for task in seqio.get_subtasks(cfg.provider):
        task_cfg = dataclasses.replace(cfg, mixture_or_task_name=task, module=None)
        if not cfg.has_split(task):
            logging.warning("Task %s has no split %r; it is not evaluated.", task.name, cfg.split)
            continue
        started = time.monotonic()
        # One shard, read by every host, since a small split has no batch for each.
        seed, info = 0 if cfg.seed is None else cfg.seed, seqio.ShardInfo(0, 1)
        prepared = examples_and_rows(task_cfg, converter_cls, info, seed, [task.name], num_epochs=1)
        with waiting(f"reading split {cfg.split!r} of {task.name}"):
            batches = list(itertools.islice(_batches(*prepared, cfg.batch_size), eval_steps))
        if not batches:
            raise UserError(
                task.name,
                why=f"has no example of split {cfg.split!r}",
                to_set="set DatasetConfig.split of train_eval to another, or leave train_eval out",
            )
        sets[task.name] = [{k: v[slice(*rows)] for k, v in batch.items()} for batch in batches]
        seconds = time.monotonic() - started
        logging.info("Read %d batches of %s in %.1f s.", len(batches), task.name, seconds)
    return sets


def _batches(examples: mixed.MixedExamples, rows: Rows, size: int) -> Iterator[HostBatch]:
    """Yield the rows of examples that end, `size` at a time, the last ones filled up."""
    shard = Shard(examples, rows, size)
    try:
        while (batch := shard.take()) is not None:
            yield batch
        if rows.complete:
            fill = lambda x: np.concatenate([x, np.zeros([size - len(x), *x.shape[1:]], x.dtype)])
            yield {name: fill(values) for name, values in rows.first(size).items()}
    finally:
        shard.close()
