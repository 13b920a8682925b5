"""Verify that a converted folder is the trained network: same names, same logits.

Logits must agree within 1e-4, or within 1e-4 of the largest logit if that is above 1 (float32 keeps
seven digits, and deep networks have logits of hundreds).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convert import t5x_params
from convert.formats.safetensors_writer import DTYPES
from convert.proof import t5x_logits, torch_logits
from convert.sizes import Sizes
from convert.tokenizer import SAMPLE, TrainedVocabulary
from t5x.checkpointing.lazy_array import LazyArray

TOLERANCE = 1e-4


def probe_batch(
    sizes: Sizes, batch: int = 2, inputs: int = 24, targets: int = 16
) -> dict[str, np.ndarray]:
    """Return random ids, int32 [B, I] and [B, T]; the second row's inputs end in padding."""
    rng = np.random.default_rng(0)
    encoder = rng.integers(2, sizes.vocab_size, (batch, inputs), dtype=np.int32)
    encoder[1:, inputs - inputs // 3 :] = 0
    target = rng.integers(2, sizes.vocab_size, (batch, targets), dtype=np.int32)
    return {
        "encoder_input_tokens": encoder,
        "decoder_input_tokens": np.pad(target[:, :-1], ((0, 0), (1, 0))),
        "decoder_target_tokens": target,
    }


def rounded(tree: t5x_params.Tree, dtype: str) -> t5x_params.Tree:
    """Return the tree with the values that a file of that dtype would hold."""
    if dtype == "float32":
        return tree

    def cast(array: LazyArray) -> LazyArray:
        fetch = lambda index: array.read(index).astype(DTYPES[dtype])
        return LazyArray(array.shape, array.dtype, fetch)

    return {name: cast(array) for name, array in tree.items()}


def trainer_logits(
    paths: list[str], sizes: Sizes, dtype: str, batch: dict[str, np.ndarray]
) -> np.ndarray:
    """Return logits [B, T, V] of a checkpoint, rounded to `dtype`, by the trainer's network."""
    return t5x_logits.trainer_logits(rounded(t5x_params.open_tree(paths), dtype), sizes, batch)


def compare(
    ours: np.ndarray, theirs: np.ndarray, their: str = "PyTorch", our: str = "the trainer"
) -> float:
    """Return the largest difference of logits [B, T, V]; raise ValueError if it is too large."""
    if not np.isfinite(theirs).all():
        raise ValueError(f"{their}'s logits are not finite: the converted weights are wrong.")
    difference = float(np.abs(ours - theirs).max())
    allowed = TOLERANCE * max(1.0, float(np.abs(ours).max()))
    if not difference <= allowed:
        raise ValueError(
            f"{their}'s logits differ from {our}'s by {difference:.3g}, more than "
            f"{allowed:.3g}: the conversion is wrong, and nothing was written."
        )
    return difference


def verify(
    folder: Path,
    paths: list[str],
    sizes: Sizes,
    dtype: str,
    vocabulary: TrainedVocabulary | None = None,
    texts: Sequence[str] = (),
) -> dict[str, Any]:
    """Compare a folder, loaded with transformers, with the trainer's network.

    `paths` are the checkpoint, or those whose mean the folder is; `vocabulary` is that of the
    folder's tokenizer, if it has one. A bfloat16 folder is compared with the trainer's weights
    rounded alike, and its difference from the unrounded ones is reported. Raise ValueError if
    names, shapes, logits or ids differ.
    """
    batch = probe_batch(sizes)
    theirs, outputs = torch_logits.torch_outputs(folder, sizes, batch, vocabulary, texts)
    ours = trainer_logits(paths, sizes, dtype, batch)
    facts: dict[str, Any] = {
        "largest_difference": compare(ours, theirs),
        "largest_logit": float(np.abs(ours).max()),
    }
    if outputs:
        facts["examples"] = [list(pair) for pair in zip(texts, outputs, strict=True)]
    if vocabulary:
        facts["tokenizer_texts"] = len(SAMPLE)
    if dtype != "float32":
        unrounded = trainer_logits(paths, sizes, "float32", batch)
        facts["largest_difference_from_float32"] = float(np.abs(unrounded - theirs).max())
    return facts
