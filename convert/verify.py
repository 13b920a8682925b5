"""The proof that a converted folder is the trained network: same names, same logits.

    facts = prove(folder, tree, sizes, "float32")       # ValueError unless it is
    facts["largest_difference"]                         # 3e-06

Logits must agree within 1e-4, or within 1e-4 of the largest logit where that is above 1 (float32
keeps seven digits, and deep networks have logits of hundreds).
"""

from pathlib import Path
from typing import Any

import numpy as np

from convert import logits, rules
from convert.config import Sizes
from convert.safetensors_writer import DTYPES
from convert.trees import Tree

TOLERANCE = 1e-4


class _Rounded:
    """An array as a bfloat16 file will give it back."""

    def __init__(self, array, dtype):
        self._array, self._dtype, self.shape, self.dtype = array, dtype, array.shape, dtype

    def read(self) -> np.ndarray:
        return self._array.read().astype(self._dtype)


def _check_names(model, sizes: Sizes) -> None:
    tied = set(model.all_tied_weights_keys)
    state = model.state_dict()
    names = {name: tuple(value.shape) for name, value in state.items() if name not in tied}
    rules.guard_targets(rules.tensors(sizes), names)


def compare(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference of two logits [B, T, V].

    Raises:
      ValueError: where it is more than `TOLERANCE` allows.
    """
    if not np.isfinite(theirs).all():
        raise ValueError("PyTorch's logits are not finite: the converted weights are wrong.")
    difference = float(np.abs(ours - theirs).max())
    allowed = TOLERANCE * max(1.0, float(np.abs(ours).max()))
    if difference > allowed:
        raise ValueError(
            f"PyTorch's logits differ from the trainer's by {difference:.3g}, more than "
            f"{allowed:.3g}: the conversion is wrong, and nothing was written."
        )
    return difference


def prove(folder: Path, tree: Tree, sizes: Sizes, dtype: str) -> dict[str, Any]:
    """Loads `folder` with transformers and compares it with the trainer's network.

    A bfloat16 folder is compared with the trainer's weights rounded alike, and its distance from
    the unrounded ones is stated.

    Raises:
      ValueError: where names, shapes or logits differ.
    """
    model = logits.load_torch(folder)
    _check_names(model, sizes)
    batch = logits.fixed_batch(sizes)
    theirs = logits.torch_logits(model, batch)
    del model
    rounded = tree
    if dtype != "float32":
        rounded = {name: _Rounded(array, DTYPES[dtype]) for name, array in tree.items()}
    ours = logits.trainer_logits(rounded, sizes, batch)
    facts = {
        "largest_difference": compare(ours, theirs),
        "largest_logit": float(np.abs(ours).max()),
    }
    if dtype != "float32":
        unrounded = logits.trainer_logits(tree, sizes, batch)
        facts["largest_difference_from_float32"] = float(np.abs(unrounded - theirs).max())
    return facts
