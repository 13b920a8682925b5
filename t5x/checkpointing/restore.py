"""From a checkpoint to a state on the devices, each process reading only the parts it holds.

  like = {"target": {"encoder": {…: jax.ShapeDtypeStruct((512, 64), "float32", sharding=…)}}, …}
  restored = restore("runs/tiny/checkpoint_2000", like)                 # going on: all must fit
  restored = restore(path, like, config, initial=make_initial_state)    # starting from another run

Shapes are compared before a number is read. Saved on one topology, restored on any other.
"""

import concurrent.futures
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from t5x.checkpointing import checksums, layout, reader
from t5x.checkpointing.config import AssignmentMap, RestoreCheckpointConfig
from t5x.checkpointing.lazy_array import DamagedCheckpoint, LazyArray
from t5x.multihost.broadcast import raise_together

_OPTIMIZER = "state/param_states/"
# Arrays in flight at once: enough to keep a bucket busy, few enough for the host's memory.
_READERS = 8


@dataclasses.dataclass(frozen=True)
class Restored:
    """What came of a restore.

    Attributes:
      state: the tree of `like`, arrays in the place of its leaves.
      path: the checkpoint.
      step: updates that the checkpoint had behind it.
      initial: names that kept their initial values, the optimizer's left out if all did.
      ignored: names of parameters in the checkpoint that the model does not have.
      optimizer_restored: False where the optimizer starts afresh.
    """

    state: dict[str, Any]
    path: str
    step: int
    initial: tuple[str, ...]
    ignored: tuple[str, ...]
    optimizer_restored: bool


@dataclasses.dataclass(frozen=True)
class Match:
    """Which array of a checkpoint goes where.

    Attributes:
      arrays: of the checkpoint, by name.
      wanted: what the state consists of, by name.
      sources: wanted name to the checkpoint's; the others keep their initial values.
      ignored: names of parameters in the checkpoint that the model does not have.
      why_no_optimizer: why the optimizer starts afresh, None where its state is taken.
    """

    arrays: Mapping[str, LazyArray]
    wanted: Mapping[str, Any]
    sources: Mapping[str, str]
    ignored: tuple[str, ...]
    why_no_optimizer: str | None


def restore(
    path: str,
    like: Mapping[str, Any],
    config: RestoreCheckpointConfig | None = None,
    *,
    initial: Callable[[], Mapping[str, Any]] | None = None,
) -> Restored:
    """Reads one checkpoint into arrays like `like`.

    Args:
      path: the checkpoint's folder (`config.path` is not looked at; see checkpoint_paths).
      like: the wanted tree as it stands on disk, `{"target": …, "state": …}` or only `target`.
        Leaves have `shape` and `dtype`; where they have a `sharding`, a jax.Array laid out so
        comes back, else a numpy array.
      config: strictness and names; None when a run goes on from its own checkpoint, which has to
        fit in everything.
      initial: makes the same tree with initial values; called only if some are needed.

    Raises:
      ValueError: no checkpoint there; parameters missing, superfluous or of another shape.
      DamagedCheckpoint: (a ValueError) its files cannot be read or hold not what was saved; on all
        hosts, wherever it was found.
    """
    found = raise_together(lambda: match(path, like, config), DamagedCheckpoint, ValueError)
    arrays, wanted, sources = found.arrays, found.wanted, found.sources
    reason = found.why_no_optimizer
    if reason:
        logging.warning("The optimizer starts afresh: in %s, %s.", path, reason)
    if found.ignored:
        left_out = ", ".join(found.ignored)
        logging.warning("Left out of %s, since the model lacks them: %s.", path, left_out)
    flat = _read_all(arrays, sources, wanted, config.dtype if config else None)
    absent = [n for n in wanted if n not in flat]
    if absent:
        flat |= _initial_values(path, absent, initial)
    named = [n for n in absent if not (reason and n.startswith(_OPTIMIZER))]
    if named:
        logging.warning("Not from %s but initial: %s.", path, ", ".join(named))
    logging.info("Restored %d arrays from %s.", len(wanted) - len(absent), path)
    step = int(arrays["state/step"].read()) if "state/step" in arrays else None
    return Restored(
        state=_unflatten(like, flat),
        path=path,
        step=layout.step_of(path) or 0 if step is None else step,
        initial=tuple(named),
        ignored=found.ignored,
        optimizer_restored=not reason,
    )


def match(
    path: str, like: Mapping[str, Any], config: RestoreCheckpointConfig | None = None
) -> Match:
    """Finds where a checkpoint holds what `like` wants, and reads no number.

    Args: as of `restore`.

    Raises:
      ValueError, DamagedCheckpoint: as `restore`.
    """
    arrays = reader.open_checkpoint(path)
    wanted = _flatten(like)
    # 1. A name of the model is looked up under the name the assignment map gives it, else its own.
    sources, kept = _assign(wanted, arrays, config.assignment_map if config else None)
    # 2. What the checkpoint lacks keeps its initial value, if the configuration allows that.
    missing = [n for n in wanted if _is_parameter(n) and n not in sources and n not in kept]
    _check_missing(path, missing, config)
    # 3. What it has besides is passed over, if the configuration allows that.
    taken = set(sources.values()) | wanted.keys()
    ignored = sorted(n for n in arrays if _is_parameter(n) and n not in taken)
    _check_ignored(path, ignored, config)
    # 4. Shapes have to agree, and only then are numbers read.
    _check_shapes(path, arrays, sources, wanted)
    # 5. The optimizer's state is taken as a whole or not at all.
    reason = _why_no_optimizer(arrays, sources, wanted, kept.union(missing))
    if reason:
        _check_fresh(path, reason, config)
        sources = {n: s for n, s in sources.items() if not n.startswith(_OPTIMIZER)}
    return Match(arrays, wanted, sources, tuple(ignored), reason)


def _assign(
    wanted: Mapping[str, Any], arrays: Mapping[str, LazyArray], rules: AssignmentMap | None
) -> tuple[dict[str, str], set[str]]:
    """Which name of the checkpoint each wanted name takes, and the names told to stay initial."""
    sources, kept, used = {}, set(), set()
    for name in wanted:
        matches = ((re.fullmatch(pattern, name), to) for pattern, to in rules or ())
        match, replacement = next(((m, to) for m, to in matches if m), (None, None))
        if match is None:
            if name in arrays:
                sources[name] = name
            continue
        used.add(match.re.pattern)
        if replacement is None:
            kept.add(name)
            continue
        sources[name] = source = match.expand(replacement)
        if source not in arrays:
            raise ValueError(
                f"RestoreCheckpointConfig.assignment_map sends {name} to {source}, which the "
                f"checkpoint lacks; it has {_several(sorted(arrays))}."
            )
    for pattern, _ in rules or ():
        # A model without an optimizer (evaluation) may share the map of one that has it.
        if pattern not in used and not (pattern.startswith("state") and "state/step" not in wanted):
            raise ValueError(
                f"RestoreCheckpointConfig.assignment_map has {pattern!r}, which matches no name "
                f"of the model fully; it has {_several(sorted(wanted))}."
            )
    return sources, kept


def _check_missing(path: str, missing: Sequence[str], config: RestoreCheckpointConfig | None):
    lenient = config is not None and (not config.strict or config.fallback_to_scratch)
    if missing and not lenient:
        raise ValueError(
            f"{path} lacks {_several(missing)}; check the MODEL include in the gin file, or set "
            "RestoreCheckpointConfig.fallback_to_scratch = True to start these from scratch."
        )


def _check_ignored(path: str, names: Sequence[str], config: RestoreCheckpointConfig | None):
    if not names:
        return
    if config is None or config.strict:
        raise ValueError(
            f"{path} has {_several(names)}, which the model does not have; check the MODEL "
            "include in the gin file, or set RestoreCheckpointConfig.strict = False to leave "
            "these out."
        )


def _check_fresh(path: str, reason: str, config: RestoreCheckpointConfig | None):
    if config is None:
        raise ValueError(
            f"{path} does not fit this run's optimizer: {reason}; set OPTIMIZER as it was, or "
            "start a new MODEL_DIR with RestoreCheckpointConfig.path on this checkpoint."
        )


def _check_shapes(
    path: str,
    arrays: Mapping[str, LazyArray],
    sources: Mapping[str, str],
    wanted: Mapping[str, Any],
) -> None:
    wrong = [
        n for n, s in sources.items() if _is_parameter(n) and arrays[s].shape != wanted[n].shape
    ]
    if wrong:
        name = wrong[0]
        more = f" ({len(wrong) - 1} more differ)" if len(wrong) > 1 else ""
        raise ValueError(
            f"{path} is of another shape: {sources[name]} is {list(arrays[sources[name]].shape)} "
            f"and the model's {list(wanted[name].shape)}{more}; check the MODEL include in the "
            "gin file (sizes, vocabulary)."
        )


def _why_no_optimizer(
    arrays: Mapping[str, LazyArray],
    sources: Mapping[str, str],
    wanted: Mapping[str, Any],
    without: set[str],
) -> str | None:
    """Why the optimizer's state cannot be taken over, None where it can."""
    slots = [n for n in wanted if n.startswith(_OPTIMIZER)]
    if slots and not any(n.startswith(_OPTIMIZER) for n in arrays):
        return "there is no optimizer state"
    # A parameter that starts from scratch starts its slots from scratch too.
    scratch = tuple(_OPTIMIZER + n.removeprefix("target/") + "/" for n in without)
    for name in slots:
        if name.startswith(scratch):
            sources.pop(name, None)
        elif name in without:
            continue
        elif name not in sources:
            return f"{name} is missing"
        elif arrays[sources[name]].shape != wanted[name].shape:
            found, want = list(arrays[sources[name]].shape), list(wanted[name].shape)
            return f"{name} is {found} and the optimizer's {want}"
    return None


def _read_all(
    arrays: Mapping[str, LazyArray],
    sources: Mapping[str, str],
    wanted: Mapping[str, Any],
    dtype: str | None,
) -> dict[str, Any]:
    as_type = lambda n: np.dtype(dtype if dtype and _is_parameter(n) else wanted[n].dtype)

    def read(item: tuple[str, str]) -> Any:
        name, source = item
        # What has a digest is laid out as it stands on disk, to be compared before it is rounded.
        checks = arrays[source].digest is not None
        own = arrays[source].dtype if checks else as_type(name)
        return _place(arrays[source], wanted[name], own)

    def read_mine() -> list[Any]:
        with concurrent.futures.ThreadPoolExecutor(_READERS) as pool:
            return list(pool.map(read, sources.items()))

    found = dict(zip(sources, raise_together(read_mine, DamagedCheckpoint), strict=True))
    for name, array in found.items():
        if isinstance(array, jax.Array) and arrays[sources[name]].digest is not None:
            arrays[sources[name]].check(int(look(array)[0]))
    rounded = lambda n, array: array if array.dtype == as_type(n) else array.astype(as_type(n))
    return {name: rounded(name, array) for name, array in found.items()}


@jax.jit
def look(array: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Its digest, uint32 [], and whether all of it is finite, bool []; the same on all hosts."""
    return checksums.digest(array, jnp), jnp.isfinite(array).all()


def _place(array: LazyArray, like: Any, dtype: np.dtype) -> Any:
    """Reads `array` to where `like` wants it: to this process's devices, or to numpy."""
    sharding = getattr(like, "sharding", None)
    if sharding is None:
        return array.read().astype(dtype, copy=False)
    parts = {}  # devices that hold the same part share one read

    def part(index: tuple[slice, ...]) -> np.ndarray:
        key = tuple((s.start, s.stop) for s in index)
        if key not in parts:
            parts[key] = array.read(index).astype(dtype, copy=False)
        return parts[key]

    return jax.make_array_from_callback(array.shape, sharding, part)


def _initial_values(path: str, names: Sequence[str], make: Callable[[], Mapping] | None):
    if make is None:
        raise ValueError(
            f"{path} lacks {_several(names)}, and there are no initial values for them here."
        )
    values = _flatten(make())
    return {name: values[name] for name in names}


def _is_parameter(name: str) -> bool:
    return name.startswith("target/")


def _several(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}/")
        elif value is not None:
            flat[f"{prefix}{key}"] = value
    return flat


def _unflatten(like: Any, flat: Mapping[str, Any], name: str = "") -> Any:
    """`like` with the values of `flat`; empty dicts and None stay."""
    if isinstance(like, Mapping):
        return {k: _unflatten(v, flat, f"{name}/{k}" if name else k) for k, v in like.items()}
    return None if like is None else flat[name]
