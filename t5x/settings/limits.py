"""Checks the type and the limits of every value that gin binds, before anything is built.

    check("DROPOUT_RATE", 2.0, network.T5Config, "dropout_rate")
    # UserError: DROPOUT_RATE is 2.0, but T5Config.dropout_rate must be at least 0 and below 1.

Types come from signatures: an int may be given for a float, a list for a tuple, and None where it
is the default. `LIMITS` has the limits. What a call (`@name()`) returns is not known here.
"""

import collections.abc
import dataclasses
import inspect
import types
import typing
from typing import Any

import numpy as np

from common.errors import UserError
from common.gin_reader import Reference, leaves

_OUR_PACKAGES = ("t5x", "tasks", "preflight", "__main__")
_DTYPES = ("float32", "bfloat16", "float16")  # dtypes that networks compute in and checkpoints hold


@dataclasses.dataclass(frozen=True)
class Limits:
    """A range for a number, for all numbers in a list or dict, or for the length of a text."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def allow(self, value: float) -> bool:
        """Return whether a number is in the range; NaN never is."""
        return (
            value == value
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        words = {"least": "at least", "above": "above", "most": "at most", "below": "below"}
        ends = {word: getattr(self, name) for name, word in words.items()}
        return " and ".join(f"{word} {end:,}" for word, end in ends.items() if end is not None)


_INF = float("inf")
# The parameters that have these limits, in any function or class. Where a parameter may be None,
# that means the default or no limit, and so does 0 where it is allowed.
_NAMES = {
    # A text has a length of at least 1: it is not empty.
    Limits(least=1): """
        model_dir output_dir cooldown_from input_file mixture_or_task_name split
        num_partitions model_parallel_submesh ici_mesh_shape
        dcn_mesh_shape period keep keep_dataset_checkpoints timeout keep_best patience
        global_every newton_schulz_steps
        num_decodes max_decode_len max_decode_steps max_decode_steps_hard_limit length_buckets
        checkpoint_period max_examples infill_period""",
    # Above these even the shapes take long to compute. `preconditions.check_memory` checks whether
    # the sizes fit this machine.
    Limits(least=1, most=2**20): """
        task_feature_lengths batch_size emb_dim mlp_dim max_length type_vocab_size""",
    Limits(least=1, most=2**14): "num_heads num_kv_heads head_dim",
    Limits(least=1, most=2**24): "vocab_size",
    Limits(least=1, most=1000): "num_layers num_encoder_layers num_decoder_layers",
    Limits(least=0, most=2**20): "extra_ids",
    Limits(least=0, most=10**8): """
        warmup_steps cooldown_steps steps_per_decay steps_per_cycle""",
    Limits(least=0): """
        total_steps eval_steps eval_period relative_steps stats_period checkpoint_steps
        num_microbatches topk step_offset min_dim_size_to_factor""",
    Limits(least=0, below=2**63): "seed",
    # JAX makes its keys of the last 32 bits, so that seeds above have the keys of one below.
    Limits(least=0, below=2**32): "random_seed fallback_init_rng",
    Limits(least=0, below=1): """
        dropout_rate attention_dropout_rate label_smoothing beta beta1 beta2""",
    Limits(least=0, most=1): "topp",
    Limits(above=0, most=1): "predicted_share",
    Limits(above=0, below=_INF): """
        norm_epsilon global_theta local_theta rope_theta epsilon decay_rate clipping_threshold
        clip_global_norm global_norm_clip_threshold max_parameter_scale least_scale matrix_rate""",
    Limits(least=0, below=_INF): """
        position_offset z_loss alpha temperature expected_loss base_learning_rate
        min_learning_rate decay_factor weight_decay weight_decay_rate epsilon1 epsilon2 atol
        rtol limit_s first_s longest_s""",
    Limits(least=1, most=2): "activation_partitioning_dims parameter_partitioning_dims",
}
LIMITS = {name: limits for limits, names in _NAMES.items() for name in names.split()}


def is_ours(function: Any) -> bool:
    """Return whether a function or class belongs to a package whose settings are checked."""
    return (getattr(function, "__module__", None) or "").partition(".")[0] in _OUR_PACKAGES


def owner_of(function: Any) -> str:
    """Return how messages and tables name a function or class."""
    return function.__qualname__.rpartition("<locals>.")[2]


def check(name: str, value: Any, function: Any, parameter: str) -> None:
    """Check one bound value, in which macros are replaced by their values.

    The message calls the setting `name`, such as the macro that the user has set. Functions of
    other packages pass. Raise UserError if the value has another type or is beyond its limits.
    """
    if not is_ours(function) and parameter != "extra_ids":  # a parameter of seqio's vocabularies
        return
    declared = inspect.signature(function).parameters.get(parameter)
    if declared is None or (value is None and declared.default is None):
        return
    qualified = f"{owner_of(function)}.{parameter}"
    but = "but" if name.endswith(qualified) else f"but {qualified}"
    if not fits(value, declared.annotation):
        words = described(declared.annotation)
        must = "must be" if "'" in words else "must be of type"
        to_set = f"write {value!r}() for what it returns" if _is_uncalled(value) else ""
        raise UserError(name, value, f"{but} {must} {words}", to_set)
    limits = LIMITS.get(parameter)
    if limits and not all(map(limits.allow, _numbers(value))):
        raise UserError(name, value, f"{but} must {_phrase(value, limits)}")


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value from gin may be passed where `hint` is the annotation."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, inspect.Parameter.empty, object) or isinstance(hint, str | typing.TypeVar):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, argument) for argument in arguments)
    if origin is typing.Literal:
        return value in arguments
    if isinstance(value, Reference):
        return not _is_uncalled(value) or _takes_functions(hint)
    if value is None or hint in (None, type(None)):
        return value is None and hint in (None, type(None))
    if hint in (bool, int, float):
        numbers: dict[Any, Any] = {bool: bool, int: int, float: (int, float)}
        return isinstance(value, numbers[hint]) and isinstance(value, bool) == (hint is bool)
    if hint is np.dtype:
        return isinstance(value, str) and value in _DTYPES
    return _fits_class(value, origin or hint, arguments)


def _fits_class(value: Any, kind: Any, arguments: tuple[Any, ...]) -> bool:
    """Return whether a literal may be passed where `kind[arguments]` is expected."""
    if not isinstance(kind, type) or kind is type:
        return True
    if kind is collections.abc.Callable:
        return callable(value)
    if issubclass(dict, kind):
        key, item = arguments or (Any, Any)
        return isinstance(value, dict) and all(
            fits(k, key) and fits(v, item) for k, v in value.items()
        )
    if issubclass(kind, tuple) or issubclass(list, kind):
        if not isinstance(value, list | tuple):
            return False
        if kind is tuple and arguments and arguments[-1] is not Ellipsis:
            return len(value) == len(arguments) and all(map(fits, value, arguments))
        return all(fits(item, arguments[0]) for item in value) if arguments else True
    return isinstance(value, kind)


def described(hint: Any) -> str:
    """Return an annotation as a message words it: "int or None"."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(described, arguments))
    if hint in (None, type(None)):
        return "None"
    if origin is typing.Literal or hint is np.dtype:
        return " or ".join(map(repr, arguments or _DTYPES))
    if origin is collections.abc.Callable:
        return "function"
    if origin is None or not arguments:
        return getattr(hint, "__name__", str(hint))
    inner = ", ".join("…" if a is Ellipsis else described(a) for a in arguments)
    return f"{getattr(origin, '__name__', origin)}[{inner}]"


def _is_uncalled(value: Any) -> bool:
    return isinstance(value, Reference) and not value.is_called


def _takes_functions(hint: Any) -> bool:
    kind = typing.get_origin(hint) or hint
    simple = (None, type(None), bool, int, float, str, bytes, dict, list, tuple, set)
    if kind in simple or kind in (collections.abc.Sequence, collections.abc.Mapping):
        return False
    return not (is_ours(kind) and isinstance(kind, type))


def _numbers(value: Any) -> list[float]:
    """Return the numbers of a value: itself, its elements and keys, or a text's length."""
    if isinstance(value, str):
        return [len(value)]
    return [item for item in leaves(value) if isinstance(item, int | float)]


def _phrase(value: Any, limits: Limits) -> str:
    if isinstance(value, str):
        return "not be empty"
    return f"{'have numbers' if isinstance(value, dict | list | tuple) else 'be'} {limits}"
