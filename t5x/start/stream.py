"""The training stream that a run starts with: at the data position of its checkpoint."""

from collections.abc import Callable

import jax
from absl import logging

from t5x.checkpointing.lazy_array import DamagedCheckpoint
from t5x.input_pipeline import mixed, position
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.corpora import Corpora
from t5x.input_pipeline.stream import TrainStream
from t5x.multihost import roll_call
from t5x.multihost.broadcast import raise_together
from t5x.start.checkpoint import Start
from t5x.trainer import Trainer


def open_stream(
    start: Start,
    trainer: Trainer,
    cfg: DatasetConfig,
    get_dataset_fn: Callable[..., TrainStream],
    seed: int,
    total_steps: int,
) -> TrainStream:
    """Return the training stream of this host at the data position of `start`, if it has one.

    The seed comes from the data position; without one, from `cfg`, or else it is `seed`.

    Raises:
      DamagedCheckpoint: the position is not as saved; on all hosts.
      UserError: the position cannot be used, or a mixture's rates change after `total_steps`.
    """
    start.check_data_position()
    folder = start.dataset_folder
    saved = raise_together(lambda: position.saved(folder), DamagedCheckpoint)
    folder = folder if saved else None  # upstream's position is of its own pipeline
    if start.is_own:
        position.check_own(saved, cfg, start.folder_and_step[0])
    if saved:
        seed = saved["seed"]
        Corpora(cfg).pin(saved)
    elif cfg.seed is not None:
        seed = cfg.seed
    partitioner = trainer.partitioner
    rows = partitioner.host_rows(cfg.batch_size)
    stream = get_dataset_fn(cfg, trainer.model.FEATURE_CONVERTER_CLS, rows, seed)
    stream.saves = partitioner.is_first_with_rows(cfg.batch_size)
    if jax.process_count() > 1:
        roll_call.assert_same(roll_call.data_facts(stream.corpora.identities))
    if folder:
        stream.restore(folder)
    elif start.is_own or (start.config and start.config.restore_dataset):
        logging.warning(
            "%s holds no data position: training resumes at its step, but the corpus starts over. "
            "Keep SaveCheckpointConfig.save_dataset = True to resume the data too.",
            start.path,
        )
    if not stream.steps:
        mixed.check_steps(cfg.provider, total_steps - start.step)
    stream.corpora.check_shards(stream.count)
    for line in (*stream.corpora.describe_corpora(), *stream.corpora.mixing(stream.count)):
        logging.info("%s", line)
    return stream
