"""Batches of ids from seqio: the training stream, whose position is kept, and evaluation sets.

  stream = TrainStream(cfg, model.FEATURE_CONVERTER_CLS, rows=host_rows(partitioner, 128), seed=0)
  batch = next(stream)                # {'encoder_input_tokens': int32 [rows, I], …} of this host
  stream.save(folder); stream.restore(folder)

A global batch is made of `SHARDS` virtual shards: shard v has its own pipeline over its own share
of the corpus and fills its own rows. A host runs the shards whose rows its devices need, so the
batch at step n does not depend on how many hosts there are, as long as their number divides the
shards'.
"""

import concurrent.futures
import dataclasses
import importlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import seqio
import tensorflow as tf
from absl import logging

from t5x.partitioning import PjitPartitioner

SHARDS = 8  # virtual shards when the batch divides so; a power of two
Batch = dict[str, np.ndarray]
_RESTING: list[list[Iterator]] = []  # the iterators of every stream, kept until the process ends


@dataclasses.dataclass
class DatasetConfig:
    """Which examples, in which form (upstream's names).

    Attributes:
      mixture_or_task_name: registered with seqio.
      task_feature_lengths: tokens a feature, {'inputs': 512, 'targets': 114}; None: the longest.
      split: of the task.
      batch_size: rows of a global batch.
      shuffle: a new order each epoch.
      seed: of order and noise; None: drawn at the start of a run and kept with its checkpoints.
      use_cached: read the task's offline cache.
      pack: put several examples into a row.
      use_custom_packing_ops: only False.
      module: imported first, for its registrations.
      use_memory_cache: keep evaluation examples in memory.
      trim_output_features: cut what is longer than its length.
    """

    mixture_or_task_name: str | seqio.Task | seqio.Mixture
    task_feature_lengths: Mapping[str, int] | None
    split: str
    batch_size: int
    shuffle: bool
    seed: int | None
    use_cached: bool = False
    pack: bool = False
    use_custom_packing_ops: bool = False
    module: str | None = None
    use_memory_cache: bool = True
    trim_output_features: bool = True

    def __post_init__(self):
        if self.module:
            importlib.import_module(self.module)

    @property
    def provider(self) -> seqio.Task | seqio.Mixture:
        """The task or mixture itself.

        Raises:
          ValueError: nothing of that name is registered.
        """
        name = self.mixture_or_task_name
        if not isinstance(name, str):
            return name
        known = [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]
        if name not in known:
            from t5x.gin_utils import nearest

            raise ValueError(
                f"MIXTURE_OR_TASK_NAME is {name!r}, which is not registered"
                f"{nearest(name, known)}; import its module in the gin file."
            )
        return seqio.get_mixture_or_task(name)


def host_rows(partitioner: PjitPartitioner, batch_size: int) -> tuple[int, int]:
    """First row and end of the rows of a global batch that this host's devices need."""
    indices = partitioner.batch_sharding.addressable_devices_indices_map((batch_size,)).values()
    bounds = [index[0].indices(batch_size) for index in indices]
    return min(b[0] for b in bounds), max(b[1] for b in bounds)


def shard_count(batch_size: int, rows: tuple[int, int]) -> int:
    """Virtual shards: as many of `SHARDS` as divide the batch, and a whole number a host."""
    hosts = max(1, batch_size // (rows[1] - rows[0]))
    return math.lcm(math.gcd(batch_size, SHARDS), hosts)


def shard_dataset(
    cfg: DatasetConfig,
    converter_cls: Callable[..., seqio.FeatureConverter],
    shard: seqio.ShardInfo,
    seed: int | None,
    num_epochs: int | None,
) -> tf.data.Dataset:
    """Model features of one shard, one row an element."""
    converter = converter_cls(pack=cfg.pack, use_custom_packing_ops=cfg.use_custom_packing_ops)
    return seqio.get_dataset(
        cfg.provider,
        task_feature_lengths=cfg.task_feature_lengths,
        feature_converter=converter,
        dataset_split=cfg.split,
        use_cached=cfg.use_cached,
        shuffle=cfg.shuffle,
        num_epochs=num_epochs,
        shard_info=shard,
        verbose=False,
        seed=seed,
        trim_output_features=cfg.trim_output_features,
    )


class TrainStream(Iterator[Batch]):
    """The rows of one host, batch after batch without end, with a position to save.

    Args:
      cfg: which examples.
      converter_cls: seqio feature converter of the model.
      rows: first and end row of this host, see `host_rows`.
      seed: of this run.
      shards: virtual shards, default as many as `shard_count` says.
    """

    def __init__(
        self,
        cfg: DatasetConfig,
        converter_cls: Callable[..., seqio.FeatureConverter],
        rows: tuple[int, int],
        seed: int,
        shards: int | None = None,
    ):
        self.cfg, self.seed = cfg, seed
        count = shards or shard_count(cfg.batch_size, rows)
        size = cfg.batch_size // count
        self.shards = range(rows[0] // size, -(-rows[1] // size))
        self.count = count
        self._pool = concurrent.futures.ThreadPoolExecutor(len(self.shards))
        options = tf.data.Options()
        options.deterministic = True
        # The state of a source lies in what it counts, so it needs no saving of its own.
        options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
        self._iterators = []
        for index in self.shards:
            shard = seqio.ShardInfo(index=index, num_shards=count)
            dataset = shard_dataset(cfg, converter_cls, shard, seed, num_epochs=None)
            dataset = dataset.batch(size, drop_remainder=True).prefetch(2).with_options(options)
            self._iterators.append(iter(dataset))
        # Destroying an iterator joins its threads while Python's lock is held, and for good if one
        # of them is about to call a source in Python. At the end of the process sources no longer
        # answer, so there it is safe.
        _RESTING.append(self._iterators)
        self.global_batch = {
            name: jax.ShapeDtypeStruct((cfg.batch_size, *spec.shape[1:]), spec.dtype.as_numpy_dtype)
            for name, spec in self._iterators[0].element_spec.items()
        }

    def __next__(self) -> Batch:
        parts = list(self._pool.map(lambda iterator: next(iterator, None), self._iterators))
        empty = [index for index, part in zip(self.shards, parts, strict=True) if part is None]
        if empty:
            raise ValueError(
                f"{self.cfg.provider.name} has no example of split {self.cfg.split!r} in shard "
                f"{empty[0]} of {self.count}, since its corpus is too small to be cut so or its "
                "documents are skipped; give DatasetConfig.mixture_or_task_name a larger one."
            )
        return {k: np.concatenate([p[k].numpy() for p in parts]) for k in parts[0]}

    def counts(self) -> dict[str, dict[str, int]]:
        """What this process has read and skipped since it started: {task: {name: count}}."""
        tasks = seqio.get_subtasks(self.cfg.provider)
        counts = {task.name: getattr(task.source, "counts", dict)() for task in tasks}
        return {name: values for name, by in counts.items() for values in by.values()}

    def save(self, folder: str) -> None:
        """Writes the position of every shard of this host into `folder`.

        Hosts that share a replica of the model share its shards and write the same at one time,
        so each writes under a name of its own first.
        """
        tf.io.gfile.makedirs(folder)
        for index, iterator in zip(self.shards, self._iterators, strict=True):
            path = self._path(folder, index)
            mine = f"{path}-by-{jax.process_index()}"
            tf.train.Checkpoint(iterator=iterator).write(mine)
            for end in (".data-00000-of-00001", ".index"):
                tf.io.gfile.rename(f"{mine}{end}", f"{path}{end}", overwrite=True)
        if self.shards[0] == 0:
            with tf.io.gfile.GFile(f"{folder}/stream.json", "w") as file:
                file.write(json.dumps({"seed": self.seed, "shards": self.count}))

    def restore(self, folder: str) -> None:
        """Goes to the position saved in `folder`.

        Raises:
          ValueError: it was saved with another number of virtual shards, or by another trainer.
        """
        saved = saved_stream(folder)
        anew = (
            "set SaveCheckpointConfig.save_dataset=False (for another run's checkpoint, "
            "RestoreCheckpointConfig.restore_dataset=False) to begin the corpus again."
        )
        if saved is None:
            raise ValueError(f"{folder} holds no position that this trainer has saved; {anew}")
        if saved["shards"] != self.count:
            raise ValueError(
                f"{folder} holds the position of {saved['shards']} virtual shards and this run has "
                f"{self.count}; keep DatasetConfig.batch_size and the number of hosts, or {anew}"
            )
        for index, iterator in zip(self.shards, self._iterators, strict=True):
            checkpoint = tf.train.Checkpoint(iterator=iterator)
            checkpoint.read(self._path(folder, index)).assert_consumed()

    def _path(self, folder: str, index: int) -> str:
        return f"{folder}/train_ds-{index:03d}-of-{self.count:03d}"

    def close(self) -> None:
        """Ends this stream's own threads; its pipelines rest until the process ends."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def saved_stream(folder: str | None) -> dict[str, int] | None:
    """Seed and number of shards saved in a checkpoint's dataset folder, None without one."""
    path = f"{folder}/stream.json"
    if folder is None or not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path) as file:
        return json.loads(file.read())


def eval_sets(
    cfg: DatasetConfig,
    converter_cls: Callable[..., seqio.FeatureConverter],
    rows: tuple[int, int],
    eval_steps: int,
) -> dict[str, list[Batch]]:
    """`eval_steps` batches of each task, the same every time; a small split is repeated.

    Returns:
      Task name to this host's rows, batch after batch.
    """
    provider = cfg.provider
    tasks = seqio.get_subtasks(provider)
    sets = {}
    for task in tasks:
        one = dataclasses.replace(cfg, mixture_or_task_name=task, module=None)
        if cfg.split not in (task.splits or ()):
            logging.warning("Task %s has no split %r; it is not evaluated.", task.name, cfg.split)
            continue
        started = time.monotonic()
        # One shard, read by every host: the split is small, and cutting it would repeat its parts.
        seed = 0 if cfg.seed is None else cfg.seed
        stream = TrainStream(one, converter_cls, (0, cfg.batch_size), seed, shards=1)
        whole = [next(stream) for _ in range(eval_steps)]
        sets[task.name] = [{k: v[slice(*rows)] for k, v in batch.items()} for batch in whole]
        stream.close()
        logging.info("Read %s in %.1f s.", task.name, time.monotonic() - started)
    return sets


def verify_matching_vocabs(cfg: DatasetConfig, model: Any) -> None:
    """Refuses a task whose vocabularies are not the model's, or do not fit its embedding.

    Raises:
      ValueError: says which, with the number of ids on both sides.
    """
    features = cfg.provider.output_features
    for feature, vocabulary, side in (
        ("inputs", model.input_vocabulary, "input_vocabulary"),
        ("targets", model.output_vocabulary, "output_vocabulary"),
    ):
        task_vocabulary = features[feature].vocabulary
        size = max(vocabulary_size(task_vocabulary), vocabulary_size(vocabulary))
        if task_vocabulary != vocabulary:
            raise ValueError(
                f"Task {cfg.provider.name} encodes {feature!r} with {task_vocabulary} but "
                f"EncoderDecoderModel.{side} is {vocabulary}; bind both to the same vocabulary."
            )
        rows = getattr(getattr(model.module, "config", None), "vocab_size", None)
        if rows is not None and size > rows:
            raise ValueError(
                f"The vocabulary {vocabulary} has {size} ids but network.T5Config.vocab_size is "
                f"{rows}, so some ids have no embedding; set it to {-(-size // 128) * 128}."
            )


def vocabulary_size(vocabulary: seqio.Vocabulary) -> int:
    """Number of ids, which loads the vocabulary.

    Raises:
      ValueError: its file cannot be read.
    """
    try:
        return vocabulary.vocab_size
    except (tf.errors.OpError, OSError) as error:
        raise ValueError(
            f"The vocabulary file {vocabulary.sentencepiece_model_file} cannot be read "
            f"({str(error).splitlines()[0]}); set "
            "seqio.SentencePieceVocabulary.sentencepiece_model_file to a copy that can."
        ) from error


def feature_shapes(cfg: DatasetConfig) -> dict[str, tuple[int, int]]:
    """Shapes of the ids of a global batch.

    Raises:
      ValueError: a feature length is missing or not positive.
    """
    shapes = {}
    for feature, side in (("inputs", "encoder"), ("targets", "decoder")):
        length = (cfg.task_feature_lengths or {}).get(feature)
        if not isinstance(length, int) or length < 1:
            raise ValueError(
                f"TASK_FEATURE_LENGTHS[{feature!r}] is {length!r}; set it to a positive number of "
                "tokens, such as {'inputs': 512, 'targets': 114}."
            )
        shapes[f"{side}_input_tokens"] = (cfg.batch_size, length)
    return shapes


def check_corpus(cfg: DatasetConfig) -> None:
    """Reads the first record of each corpus, where its source can (`peek`).

    Raises:
      ValueError: there is no such split, column or corpus; the sentence says which there are.
    """
    for task in seqio.get_subtasks(cfg.provider):
        peek = getattr(getattr(task, "source", None), "peek", None)
        if peek is not None:
            peek(cfg.split, 1)
