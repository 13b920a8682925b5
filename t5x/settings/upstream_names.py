"""Arguments of upstream T5X that this trainer ignores, with a warning, when gin files bind them.

    ignores(train, "use_orbax")                # True, with a warning the first time

A run is the same without them.
"""

import functools
import inspect
from typing import Any

from absl import logging

from t5x.settings.limits import is_ours, owner_of

_ARRAYS = "all arrays are distributed jax.Arrays"
_READING = "upstream T5X reads no seqio task by it either"
_OWN_METRICS = "t5x.eval measures a task's own metrics; train reports the loss"

_OF_STATE = {
    "train_state_initializer_cls": "the state is made by t5x.train_state",
    "use_orbax": "checkpoints are saved by Orbax, and both kinds are read",
}
_OF_ARRAYS = dict.fromkeys(("use_gda", "use_jax_array"), _ARRAYS)

# The reason of each, by function or class.
IGNORED: dict[str, dict[str, str]] = {
    "train": {
        **_OF_STATE,
        **_OF_ARRAYS,
        "concurrent_metrics": "metrics are always read while the next step runs",
        "gc_period": "no step leaves garbage that must be collected at the same time on all hosts",
    },
    "evaluate": {
        **dict.fromkeys(("training_evaluator_cls", "train_eval_get_dataset_fn"), _OWN_METRICS),
        **_OF_STATE,
        **_OF_ARRAYS,
    },
    "infer": {
        **_OF_STATE,
        **_OF_ARRAYS,
        "merge_fn": "results are appended in order, and merge_chunked_results = False keeps parts",
        "checkpoint_ds_iter": "progress is the number of lines written",
    },
    "precompile": _OF_ARRAYS,
    "DatasetConfig": dict.fromkeys(
        ("runtime_preprocessors", "num_prefetch_threads", "num_workers"), _READING
    ),
    "SaveCheckpointConfig": {"use_gda": _ARRAYS},
    "RestoreCheckpointConfig": {"use_gda": _ARRAYS},
    "PjitPartitioner": {"use_cpu_pjit": "a CPU is used like any other device"},
    "Trainer": dict.fromkeys(("eval_names", "summary_dir"), "train sets it"),
    "beam_search": {
        "initial_index": "the model starts at position 0 and feeds a prompt from there",
    },
}


def ignores(function: Any, argument: str) -> bool:
    """Return whether a missing argument of a function or class is ignored; if so, warn once."""
    if not is_ours(function):
        return False
    owner = owner_of(function)
    reason = IGNORED.get(owner, {}).get(argument)
    if reason is None or argument in inspect.signature(function).parameters:
        return False
    _warn(f"{owner}.{argument}", reason)
    return True


@functools.cache
def _warn(setting: str, reason: str) -> None:
    logging.warning("%s is ignored: %s.", setting, reason)
