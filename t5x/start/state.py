"""The state that a run starts with: restored from its checkpoint, or initial."""

from collections.abc import Callable

import jax

from t5x.checkpointing import restore
from t5x.checkpointing.lazy_array import DamagedCheckpoint
from t5x.input_pipeline.stream import TrainStream
from t5x.start.checkpoint import Start
from t5x.start.model_dir import saved_by_another
from t5x.train_state import TrainState, from_disk, initial_state, to_disk
from t5x.trainer import Trainer


def stream_and_state(
    start: Start,
    open_stream: Callable[[Start], TrainStream],
    trainer: Trainer,
    init_rng: jax.Array,
) -> tuple[TrainStream, TrainState]:
    """Return the stream at its position and the starting state.

    While the state is restored the step compiles and the first batch is made: the only overlap of a
    start. Raise DamagedCheckpoint, on all hosts, if either is not as saved.
    """
    stream = open_stream(start)
    trainer.compile(stream.global_batch)
    stream.start()
    try:
        return stream, starting_state(start, trainer, init_rng)
    except DamagedCheckpoint:
        stream.close()
        raise


def starting_state(start: Start, trainer: Trainer, init_rng: jax.Array) -> TrainState:
    """Return the state that training starts with: restored as `start` says, or initial."""
    specs = trainer.specs
    if start.path is None:
        return initial_state(trainer.model, specs, init_rng)

    def initial() -> dict:
        return to_disk(initial_state(trainer.model, specs, init_rng), specs)

    restored = restore.restore(
        start.path,
        specs.on_disk,
        start.config,
        initial=initial,
        other_optimizer=saved_by_another(start.path, trainer.model),
    )
    return from_disk(restored.state, specs)


def match(start: Start, trainer: Trainer) -> restore.Match | None:
    """Return what `starting_state` would restore, without reading it; None without a checkpoint."""
    if start.path is None:
        return None
    other = saved_by_another(start.path, trainer.model)
    return restore.match(start.path, trainer.specs.on_disk, start.config, other)
