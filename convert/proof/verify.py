"""The proof that a converted folder is the trained network: same names, same logits.

    facts = prove(folder, paths, sizes, "float32")      # ValueError unless it is
    facts["largest_difference"]                         # 3e-06

Logits must agree within 1e-4, or within 1e-4 of the largest logit where that is above 1 (float32
keeps seven digits, and deep networks have logits of hundreds).
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from convert import t5x_params, weight_map
from convert.formats.safetensors_writer import DTYPES
from convert.model_config import Sizes
from convert.proof import t5x_logits, torch_logits
from convert.proof.probe_batch import fixed_batch
from convert.subprocesses import run_apart
from convert.tokenizer import Trained
from t5x.checkpointing.lazy_array import Index

TOLERANCE = 1e-4
# Parameters above which a network is proved block by block, each library in its own process.
_LARGE = 8_000_000


class _Rounded:
    """An array as a file of another dtype will give it back."""

    def __init__(self, array: t5x_params.Array, dtype: np.dtype):
        self._array, self.shape, self.dtype = array, array.shape, dtype

    def read(self, index: Index = ()) -> np.ndarray:
        return self._array.read(index).astype(self.dtype)


def rounded(tree: t5x_params.Tree, dtype: str) -> t5x_params.Tree:
    """A tree whose arrays read as a file of that dtype will give them back."""
    if dtype == "float32":
        return tree
    return {name: _Rounded(array, DTYPES[dtype]) for name, array in tree.items()}


def trainer_logits(
    paths: list[str], sizes: Sizes, dtype: str, batch: dict[str, Any] | None = None
) -> np.ndarray:
    """Logits [B, T, V] of a checkpoint, rounded to `dtype`, by the trainer's network.

    On the fixed batch, unless another is given.
    """
    tree = rounded(t5x_params.open_tree(paths), dtype)
    return t5x_logits.trainer_logits(tree, sizes, batch or fixed_batch(sizes))


def is_large(sizes: Sizes) -> bool:
    """Whether a network is compared block by block."""
    return sum(math.prod(tensor.shape) for tensor in weight_map.tensors(sizes)) > _LARGE


def compare(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference of two logits [B, T, V].

    Raises:
      ValueError: where it is more than `TOLERANCE` allows.
    """
    if not np.isfinite(theirs).all():
        raise ValueError("PyTorch's logits are not finite: the converted weights are wrong.")
    difference = float(np.abs(ours - theirs).max())
    allowed = TOLERANCE * max(1.0, float(np.abs(ours).max()))
    if not difference <= allowed:
        raise ValueError(
            f"PyTorch's logits differ from the trainer's by {difference:.3g}, more than "
            f"{allowed:.3g}: the conversion is wrong, and nothing was written."
        )
    return difference


def prove(
    folder: Path,
    paths: list[str],
    sizes: Sizes,
    dtype: str,
    trained: Trained | None = None,
    apart: bool = False,
) -> dict[str, Any]:
    """Loads `folder` with transformers and compares it with the trainer's network.

    A bfloat16 folder is compared with the trainer's weights rounded alike, and its distance from
    the unrounded ones is stated.

    Args:
      folder: a converted folder.
      paths: the checkpoint, or those whose mean it is.
      sizes: the network's.
      dtype: of the folder's weights.
      trained: the vocabulary that the folder's tokenizer must equal, if it has one.
      apart: whether small networks too are run in processes of their own.

    Raises:
      ValueError: where names, shapes, logits or ids differ.
    """
    large = is_large(sizes)
    apart = apart or large
    by_torch = torch_logits.torch_logits_alone if apart else torch_logits.torch_logits
    theirs = run_apart(apart, by_torch, folder, sizes, large, trained)
    ours = run_apart(apart, trainer_logits, paths, sizes, dtype)
    facts = {
        "largest_difference": compare(ours, theirs),
        "largest_logit": float(np.abs(ours).max()),
    }
    if trained:
        facts["tokenizer_texts"] = len(trained.texts)
    if dtype != "float32":
        unrounded = run_apart(apart, trainer_logits, paths, sizes, "float32")
        facts["largest_difference_from_float32"] = float(np.abs(unrounded - theirs).max())
    return facts
