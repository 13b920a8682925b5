"""Restore a checkpoint to the devices; each process reads only the parts that it holds.

  like = {"target": {"encoder": {…: jax.ShapeDtypeStruct((512, 64), "float32", sharding=…)}}, …}
  restored = restore("runs/tiny/checkpoint_2000", like)                 # to resume: all must fit
  restored = restore(path, like, config, initial=make_initial_state)    # to start from another run

`config` says under which names the arrays are found, and what may be missing. `initial` makes the
values that the checkpoint lacks. `match` compares all names and shapes before any array is read.
The devices need not be those that saved the checkpoint. `t5x.start.checkpoint` chooses the
checkpoint.

`digest_of` and `all_finite` inspect an array where it is: here after it was read, and in
`t5x.checkpoints` before it is saved.
"""

import concurrent.futures
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from common.errors import UserError
from common.tables import first_names
from t5x.array_types import PyTree
from t5x.checkpointing import checksums, layout, reader
from t5x.checkpointing.config import AssignmentMap, RestoreCheckpointConfig
from t5x.checkpointing.lazy_array import RESTORE_ANOTHER, DamagedCheckpoint, LazyArray
from t5x.multihost.broadcast import raise_together

Arrays = Mapping[str, LazyArray]
_OPTIMIZER = "state/param_states/"
# Arrays in flight at once: enough to keep a bucket busy, few enough for the host's memory.
_READERS = 8
_TABLES = ("one relative position table for a stack", "a relative position table in each layer")


class Restored(NamedTuple):
    """The result of a restore."""

    state: dict[str, Any]  # the tree of `like` with arrays as its leaves
    step: int  # updates applied to the checkpoint


class Match(NamedTuple):
    """Which array of a checkpoint goes where."""

    arrays: Arrays  # {name: array} of the checkpoint
    leaves: Mapping[str, Any]  # {name: leaf} of the state
    sources: Mapping[str, str]  # the checkpoint's name of each leaf that it has
    ignored: tuple[str, ...]  # names of parameters in the checkpoint that the model lacks
    why_no_optimizer: str | None  # why the optimizer's state is not restored, None where it is


def restore(
    path: str,
    like: Mapping[str, Any],
    config: RestoreCheckpointConfig | None = None,
    *,
    initial: Callable[[], Mapping[str, Any]] | None = None,
    other_optimizer: str | None = None,
) -> Restored:
    """Read one checkpoint into arrays like `like`.

    Args:
      path: the checkpoint's folder (`config.path` is ignored; see checkpoint_paths).
      like: the tree to fill, as on disk, `{"target": …, "state": …}` or only `target`. Leaves have
        `shape` and `dtype`; those with a `sharding` become jax arrays, the others numpy arrays.
      config: strictness and names; None to resume a run, whose own checkpoint must fit exactly.
      initial: makes the same tree with initial values; called only if some are needed.
      other_optimizer: why the optimizer's state is of another optimizer, though it may fit; None
        if that is not known.

    Raises:
      UserError: no checkpoint there; parameters missing, superfluous or of another shape.
      DamagedCheckpoint: (a UserError) its files cannot be read or have changed; on all hosts.
    """
    matched = raise_together(
        lambda: match(path, like, config, other_optimizer), DamagedCheckpoint, ValueError
    )
    reason = matched.why_no_optimizer
    if reason:
        logging.warning("A new optimizer is used: in %s, %s.", path, reason)
    if matched.ignored:
        names = ", ".join(matched.ignored)
        logging.warning("Ignored in %s, since the model lacks them: %s.", path, names)
    flat = _read_all(matched, config.dtype if config else None)
    absent = [n for n in matched.leaves if n not in flat]
    if absent:
        if initial is None:
            why = f"lacks {first_names(absent, 3)}, and no initial values are given"
            raise UserError(path, why=why, to_set=RESTORE_ANOTHER)
        values = by_name(initial())
        flat |= {name: values[name] for name in absent}
    named = [n for n in absent if not (reason and n.startswith(_OPTIMIZER))]
    if named:
        logging.warning("Not in %s, so with initial values: %s.", path, ", ".join(named))
    logging.info("Restored %d arrays from %s.", len(matched.leaves) - len(absent), path)
    return Restored(
        jax.tree.unflatten(jax.tree.structure(like), [flat[n] for n in matched.leaves]),
        _step(path, matched.arrays),
    )


def check_readable(run_folder: str, step: int, like: Mapping[str, Any]) -> None:
    """Open a checkpoint that was just saved as a resume would.

    The smallest array of each kind is read: of the parameters, of each slot of the optimizer, the
    step. `like` is the tree that was saved, whose leaves have `shape` and `dtype`.

    Raises:
      UserError: it does not hold this tree.
      DamagedCheckpoint: (a UserError) it cannot be read, differs from what was saved, or has no
        data position although one was saved.
    """
    matched = match(layout.step_folder(run_folder, step), like)
    smallest: dict[str, str] = {}
    for name in sorted(matched.leaves, key=lambda name: matched.leaves[name].size):
        kind = "a parameter" if _is_parameter(name) else os.path.basename(name)
        smallest.setdefault(kind, name)
    for name in smallest.values():
        matched.arrays[name].read()
    layout.check_position(run_folder, step, is_new=True)


def check_name(path: str, arrays: Arrays | None = None) -> None:
    """Raise UserError if a checkpoint holds another step than its name says."""
    step = _step(path, reader.open_checkpoint(path) if arrays is None else arrays)
    if layout.step_of(path) not in (None, step):
        raise UserError(
            path,
            why=f"holds the state of step {step}",
            to_set=f"give it its name back, checkpoint_{step}, or move it away",
        )


def _step(path: str, arrays: Arrays) -> int:
    saved = arrays.get("state/step")
    return int(saved.read()) if saved else layout.step_of(path) or 0


def match(
    path: str,
    like: Mapping[str, Any],
    config: RestoreCheckpointConfig | None = None,
    other_optimizer: str | None = None,
) -> Match:
    """Find where a checkpoint holds the leaves of `like`, without reading arrays; see `restore`.

    Only the step of a run's own checkpoint is read, which its name must say.
    """
    arrays, leaves = reader.open_checkpoint(path), by_name(like)
    # 1. A leaf is looked up under the name that the assignment map gives it, else its own.
    sources, initial = _assign(leaves, arrays, (config.assignment_map if config else None) or ())
    # 2. Parameters that the checkpoint lacks keep their initial values, if that is allowed.
    missing = [n for n in leaves if _is_parameter(n) and n not in sources and n not in initial]
    if missing and (config is None or (config.strict and not config.fallback_to_scratch)):
        kind, other = (_network(names) for names in (arrays, leaves))
        in_body = any(n.startswith(("target/encoder/", "target/decoder/")) for n in missing)
        if in_body and None not in (kind, other) and kind != other:
            raise UserError(
                path,
                why=f"is of {kind}, and the model is {other}",
                to_set="name another checkpoint, or include the MODEL of this one",
            )
        own_table = "target/encoder/layers_0/relpos_bias/rel_embedding"
        if (own_table in arrays) != (own_table in leaves):
            raise UserError(
                path,
                why=f"lacks {missing[0]}, since it has {_TABLES[own_table in arrays]}",
                to_set=f"set network.T5Config.own_relative_bias = {own_table in arrays}",
            )
        remedy = _remedy(config, "fallback_to_scratch = True to start these from scratch")
        raise UserError(path, why=f"lacks {first_names(missing, 3)}", to_set=remedy)
    # 3. Parameters that the model lacks are ignored, if that is allowed.
    taken = set(sources.values()) | leaves.keys()
    ignored = sorted(n for n in arrays if _is_parameter(n) and n not in taken)
    if ignored and (config is None or config.strict):
        why = f"has {first_names(ignored, 3)}, which the model does not have"
        raise UserError(path, why=why, to_set=_remedy(config, "strict = False to ignore these"))
    # 4. Shapes must agree.
    _check_shapes(path, arrays, sources, leaves)
    # 5. The optimizer's state is restored completely or not at all.
    reason = _why_no_optimizer(arrays, sources, leaves, initial.union(missing)) or other_optimizer
    if reason and config is None:
        raise UserError(
            path,
            why=f"does not fit this run's optimizer: {reason}",
            to_set="set OPTIMIZER to its previous value, or start a new MODEL_DIR with "
            "RestoreCheckpointConfig.path on this checkpoint",
        )
    if reason:
        sources = {n: s for n, s in sources.items() if not n.startswith(_OPTIMIZER)}
    # 6. A run's own checkpoint holds the step of its name.
    if config is None:
        check_name(path, arrays)
    return Match(arrays, leaves, sources, tuple(ignored), reason)


def _remedy(config: RestoreCheckpointConfig | None, setting: str) -> str:
    """Return what to set; a run's own checkpoint takes no RestoreCheckpointConfig."""
    check = "check the MODEL include in the gin file, or set"
    if config is None:
        return f"{check} another MODEL_DIR, since this one holds the run of another model"
    return f"{check} RestoreCheckpointConfig.{setting}"


def _network(names: Iterable[str]) -> str | None:
    """Return what kind of network has these parameters, None if it has no encoder."""
    parts = {part for name in names if _is_parameter(name) for part in name.split("/")[1:4]}
    if "encoder" not in parts:
        return None
    if "decoder" not in parts:
        return "an encoder"
    return "a T5Gemma 2" if "post_mlp_layer_norm" in parts else "a T5"


def _assign(
    leaves: Mapping[str, Any], arrays: Arrays, rules: AssignmentMap
) -> tuple[dict[str, str], set[str]]:
    """Return the checkpoint's name of each leaf, and the leaves that keep their initial value."""
    sources, initial, used = {}, set(), set()
    for name in leaves:
        for pattern, replacement in rules:
            renamed = re.fullmatch(pattern, name)
            if not renamed:
                continue
            used.add(pattern)
            if replacement is None:
                initial.add(name)
                break
            sources[name] = source = renamed.expand(replacement)
            if source not in arrays:
                raise UserError(
                    "RestoreCheckpointConfig.assignment_map",
                    why=f"sends {name} to {source}, which the checkpoint lacks",
                    to_set=f"send it to one that it has, such as {first_names(sorted(arrays), 3)}",
                )
            break
        else:
            if name in arrays:
                sources[name] = name
    for pattern, _ in rules:
        # A model without an optimizer (evaluation) may share the map of one that has it.
        if pattern not in used and not (pattern.startswith("state") and "state/step" not in leaves):
            raise UserError(
                "RestoreCheckpointConfig.assignment_map",
                why=f"has {pattern!r}, which matches no name of the model fully",
                to_set=f"match one that it has, such as {first_names(sorted(leaves), 3)}",
            )
    return sources, initial


def _check_shapes(
    path: str, arrays: Arrays, sources: Mapping[str, str], leaves: Mapping[str, Any]
) -> None:
    shapes = {n: (arrays[s].shape, leaves[n].shape) for n, s in sources.items() if _is_parameter(n)}
    wrong = [n for n, (stored, expected) in shapes.items() if stored != expected]
    if wrong:
        stored, expected = map(list, shapes[wrong[0]])
        more = f" ({len(wrong) - 1} more differ)" if len(wrong) > 1 else ""
        raise UserError(
            path,
            why=f"is of another shape: {sources[wrong[0]]} is {stored} and the model's "
            f"{expected}{more}",
            to_set="check the MODEL include in the gin file (sizes, vocabulary)",
        )


def _why_no_optimizer(
    arrays: Arrays, sources: dict[str, str], leaves: Mapping[str, Any], without: set[str]
) -> str | None:
    """Return why the optimizer's state does not fit, None where it does.

    `sources` loses the slots of the parameters in `without`, which start from scratch.
    """
    slots = [n for n in leaves if n.startswith(_OPTIMIZER)]
    if slots and not any(n.startswith(_OPTIMIZER) for n in arrays):
        return "there is no optimizer state"
    scratch = tuple(_OPTIMIZER + n.removeprefix("target/") + "/" for n in without)
    for name in slots:
        if name.startswith(scratch):
            sources.pop(name, None)
        elif name in without:
            continue
        elif name not in sources:
            return f"{name} is missing"
        elif arrays[sources[name]].shape != leaves[name].shape:
            stored, expected = list(arrays[sources[name]].shape), list(leaves[name].shape)
            return f"{name} is {stored} and the optimizer's {expected}"
    return None


def _read_all(matched: Match, dtype: str | None) -> dict[str, Any]:
    """Return the matched arrays, the parameters as `dtype`."""

    def dtype_of(name: str) -> np.dtype:
        return np.dtype(dtype if dtype and _is_parameter(name) else matched.leaves[name].dtype)

    def read(name: str) -> Any:
        # An array with a digest is placed in its dtype on disk, and rounded once verified.
        array = matched.arrays[matched.sources[name]]
        dtype_on_disk = dtype_of(name) if array.digest is None else array.dtype
        return _place(array, matched.leaves[name], dtype_on_disk)

    names = list(matched.sources)

    def read_mine() -> list[Any]:
        with concurrent.futures.ThreadPoolExecutor(_READERS) as pool:
            return list(pool.map(read, names))

    values = raise_together(read_mine, DamagedCheckpoint)
    flat = dict(zip(names, values, strict=True))
    for name, value in flat.items():
        stored = matched.arrays[matched.sources[name]]
        if isinstance(value, jax.Array) and stored.digest is not None:
            stored.check_digest(digest_of(value))
        if value.dtype != dtype_of(name):
            flat[name] = value.astype(dtype_of(name))
    return flat


def digest_of(array: jax.Array | np.ndarray) -> int:
    """Return the digest of an array, computed where it is; the same on all hosts."""
    on_devices = isinstance(array, jax.Array)
    return int(_digest_on_devices(array) if on_devices else checksums.digest(array))


def digest_of_all(tree: Any) -> str:
    """Return a digest of the names and all values of a tree of arrays, the same on all hosts."""
    digests = "".join(f"{name} {digest_of(x)}\n" for name, x in by_name(tree).items())
    return f"{zlib.crc32(digests.encode()):08x}"


def all_finite(array: jax.Array | np.ndarray) -> bool:
    """Return whether all of an array is finite, computed where it is; the same on all hosts."""
    on_devices = isinstance(array, jax.Array)
    return bool(_all_finite_on_devices(array) if on_devices else np.isfinite(array).all())


# Two programs, not one: their sums over the devices do not depend on each other. On a CPU with few
# cores devices may meet in them in different orders, and XLA aborts a sum that waits for 40 s.
@jax.jit
def _digest_on_devices(array: jax.Array) -> jax.Array:
    return checksums.digest(array, jnp)


@jax.jit
def _all_finite_on_devices(array: jax.Array) -> jax.Array:
    return jnp.isfinite(array).all()


def _place(array: LazyArray, like: Any, dtype: np.dtype) -> Any:
    """Read `array` to this process's devices, laid out as `like`, or to numpy."""
    sharding = getattr(like, "sharding", None)
    if sharding is None:
        return array.read().astype(dtype, copy=False)
    parts: dict[Any, np.ndarray] = {}  # devices that hold the same part share one read

    def part(index: tuple[slice, ...] | None) -> np.ndarray:
        index = index or ()
        key = tuple((s.start, s.stop) for s in index)
        if key not in parts:
            parts[key] = array.read(index).astype(dtype, copy=False)
        return parts[key]

    return jax.make_array_from_callback(array.shape, sharding, part)


def by_name(tree: PyTree) -> dict[str, Any]:
    """Return the leaves of nested dicts as {"target/encoder/…": leaf}, in the order of jax."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(p, simple=True, separator="/"): leaf for p, leaf in leaves}


def _is_parameter(name: str) -> bool:
    return name.startswith("target/")
