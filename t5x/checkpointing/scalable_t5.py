"""Checkpoints of upstream's `examples/scalable_t5`, as the public umT5 are, in our layout.

  # of target/encoder/encoder/attention/query/kernel [D, L, H, K], …
  arrays = layer_by_layer(arrays)   # target/encoder/layers_0/attention/query/kernel [D, H*K], …

Upstream keeps heads apart in the kernels of attention, a relative position table in each layer and,
where it scans them, all layers in one array. Its Adafactor always factors arrays of three
dimensions or more: v_row is by emb_dim, v_col by the rest. Ours, and upstream's for `examples/t5`,
factors matrices: v_row is by the smaller dimension.

Letters: L layers, D emb_dim, H heads, K head_dim, A = H*K, F mlp_dim, R buckets of positions.
"""

import math
import re
import threading
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from common.errors import UserError
from t5x.checkpointing.lazy_array import Index, LazyArray

Arrays = Mapping[str, LazyArray]
# A layer's parameters and their axes, heads apart.
_AXES = {
    r"(query|key|value)/kernel": "DHK",
    r"out/kernel": "HKD",
    r"wi(_\d)?/kernel": "DF",
    r"wo/kernel": "FD",
    r"scale": "D",
    r"rel_embedding": "HR",
}
_NAME = re.compile(
    r"(?P<root>target|state/param_states(?:/.+)?)/(?P<stack>encoder|decoder)/"
    r"(?P<layer>(?P=stack)|layers|layers_\d+)/"
    rf"(?P<parameter>(?:.+/)?(?:{'|'.join(_AXES)}))(?:/(?P<slot>m|v|v_row|v_col))?"
)
_OTHER = {"v_row": "v_col", "v_col": "v_row"}


class _Name(NamedTuple):
    """A name's parts; `layer` is `layers_<i>`, or for all layers the stack's name or `layers`."""

    root: str
    stack: str
    layer: str
    parameter: str
    slot: str | None

    @classmethod
    def parse(cls, text: str) -> "_Name | None":
        """Return the parts, None unless it is an array of a layer."""
        found = _NAME.fullmatch(text)
        return cls(**found.groupdict()) if found else None

    def __str__(self) -> str:
        return "/".join(part for part in self if part)

    @property
    def target(self) -> str:
        """The name of the parameter."""
        return str(self._replace(root="target", slot=None))

    @property
    def axes(self) -> str:
        """The letters of the parameter's axes in one layer, heads apart."""
        return next(a for end, a in _AXES.items() if re.search(f"(^|/){end}$", self.parameter))

    @property
    def is_scanned(self) -> bool:
        """Whether it is an array of all layers."""
        return not self.layer.startswith("layers_")

    def of_layer(self, layer: int) -> "_Name":
        """Return the name in one layer."""
        return self._replace(layer=f"layers_{layer}")


def _slot(slot: str, axes: str, sizes: Mapping[str, int]) -> str:
    """Return our name of upstream's v_row or v_col.

    Upstream's v_row is by emb_dim, ours by the smaller dimension, or by the first of equal ones.
    """
    rest = math.prod(sizes[a] for a in axes if a != "D")
    by_embed = sizes["D"] < rest or (sizes["D"] == rest and axes[0] == "D")
    return slot if by_embed else _OTHER[slot]


def _kept(slot: str, axes: str) -> str:
    """Return which axes of a parameter upstream's v_row or v_col has."""
    return "".join(a for a in axes if a == "L" or (a == "D") == (slot == "v_row"))


def layer_by_layer(arrays: Arrays, together: bool = False) -> dict[str, LazyArray]:
    """Return arrays under our network's names and in its shapes; those that are so already, as is.

    With `together` the caller reads the same part of all layers of an array, one after the other:
    it is read from storage once, and kept until then. Raise UserError if arrays of one stack
    differ in their number of layers.
    """
    layer_axis = {stack: _layer_axis(arrays, stack) for stack in ("encoder", "decoder")}
    lengths: dict[str, tuple[int, str]] = {}
    found: dict[str, LazyArray] = {}
    for text, array in arrays.items():
        name = _Name.parse(text)
        parameter = arrays.get(name.target) if name else None
        axes = _stored_axes(name, parameter, layer_axis) if name and parameter else ""
        if name is None or parameter is None or not axes:
            found[text] = array
            continue
        sizes = dict(zip(axes, parameter.shape, strict=True))
        if "L" in axes:
            length, example = lengths.setdefault(name.stack, (sizes["L"], text))
            if length != sizes["L"]:
                raise UserError(
                    f"{array.name or text} has {sizes['L']} layers and {example} has {length}, but "
                    "all arrays of a stack must have as many; take another checkpoint."
                )
        found |= _layers(name, array, axes, sizes, together)
    return found


def _layer_axis(arrays: Arrays, stack: str) -> int:
    """Return the axis of layers, 0 or 1 (the default), by the only parameters of two axes."""
    norm = arrays.get(f"target/{stack}/{stack}_norm/scale")
    scales = re.compile(rf"target/{stack}/({stack}|layers)/.+/scale")
    for text, array in arrays.items():
        if norm and scales.fullmatch(text):
            return 1 if array.shape[:1] == norm.shape else 0
    return 1


def _stored_axes(name: _Name, parameter: LazyArray, layer_axis: Mapping[str, int]) -> str:
    """Return the letters of a parameter's axes; none if it is stored as ours, or unknown."""
    for axes in (name.axes, name.axes.replace("HK", "A")):
        i = layer_axis[name.stack]
        stored = f"{axes[:i]}L{axes[i:]}" if name.is_scanned else axes
        if len(parameter.shape) == len(stored):
            return stored if name.is_scanned or "HK" in axes else ""
    return ""


def _layers(
    name: _Name, array: LazyArray, axes: str, sizes: Mapping[str, int], together: bool
) -> dict[str, LazyArray]:
    """Return the arrays of the layers in one of upstream's; axes and sizes are the parameter's."""
    is_scanned = name.is_scanned
    if name.slot in _OTHER and "D" in axes and array.shape != (1,):
        kept = _kept(name.slot, axes)
        name = name._replace(slot=_slot(name.slot, axes.replace("L", ""), sizes))
        axes = kept
    texts = [str(name.of_layer(i)) for i in range(sizes["L"])] if is_scanned else [str(name)]
    if array.shape != tuple(sizes[a] for a in axes):  # a slot that is not used: one zero
        return dict.fromkeys(texts, array)
    stored = _Stored(array, axes.find("L"), len(texts), together)
    shape = tuple(sizes[a] for a in axes if a != "L")
    joined = axes.replace("L", "").find("HK")
    return {text: stored.layer(i, shape, joined) for i, text in enumerate(texts)}


class _Stored:
    """One of upstream's arrays, read as our arrays of one layer each.

    Args:
      array: what is stored.
      axis: of the layers, -1 without one.
      layers: their number.
      together: see `layer_by_layer`.
    """

    def __init__(self, array: LazyArray, axis: int, layers: int, together: bool):
        self._array, self._axis, self._together = array, axis, together
        self._every = frozenset(range(layers))
        self._read: dict[tuple, tuple[np.ndarray, frozenset[int]]] = {}  # part: values, layers left
        self._lock = threading.Lock()

    def layer(self, layer: int, shape: tuple[int, ...], joined: int) -> LazyArray:
        """Return one layer; `shape` is as stored, axes `joined` and the next become one if >= 0."""
        ours = shape
        if joined >= 0:
            ours = (*shape[:joined], shape[joined] * shape[joined + 1], *shape[joined + 2 :])

        def fetch(index: Index) -> np.ndarray:
            every = (*index, *(slice(None),) * (len(ours) - len(index)))
            part = [slice(*s.indices(n)) for s, n in zip(every, ours, strict=True)]
            size, cut = [s.stop - s.start for s in part], [slice(None)] * len(ours)
            if joined >= 0:  # the heads that the part touches
                wanted, depth = part[joined], shape[joined + 1]
                heads = slice(wanted.start // depth, -(-wanted.stop // depth))
                before = heads.start * depth
                size[joined] = heads.stop * depth - before
                cut[joined] = slice(wanted.start - before, wanted.stop - before)
                part[joined : joined + 1] = [heads, slice(0, depth)]
            values = self._fetch(layer, part, self._together or index == ())
            return values.reshape(size)[tuple(cut)]

        return LazyArray(ours, self._array.dtype, fetch, self._array.name)

    def _fetch(self, layer: int, part: list[slice], together: bool) -> np.ndarray:
        i = self._axis
        if i < 0:
            return self._array.read(tuple(part))
        if not together:
            return self._array.read((*part[:i], slice(layer, layer + 1), *part[i:]))
        key = tuple((s.start, s.stop) for s in part)
        with self._lock:
            values, left = self._read.pop(key, (None, self._every))
            if values is None:
                values = self._array.read((*part[:i], slice(None), *part[i:]))
            if left := left - {layer}:
                self._read[key] = values, left
        return values.take(layer, i)
