"""Verify that a converted folder is the trained network: same names, same logits.

Logits must agree within 1e-4, or within 1e-4 of the largest logit if that is above 1 (float32 keeps
seven digits, and deep networks have logits of hundreds). How each framework computes them is in
`t5x_logits` and `torch_logits`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import UserError
from convert import t5x_params, weight_map
from convert.formats.safetensors_writer import DTYPES
from convert.proof import same_ids, t5x_logits, torch_logits
from convert.proof.odd_texts import odd_texts
from convert.sizes import BertSizes, EncoderSizes, Sizes
from convert.tokenizer import Vocabulary
from t5x.checkpointing.lazy_array import Index, LazyArray

TOLERANCE = 1e-4


def probe_batch(sizes: Sizes) -> dict[str, np.ndarray]:
    """Return random int32 ids in the order of the network's arguments; the second row ends padded.

    A T5 has 24 inputs and 16 targets. An encoder has up to 200 tokens and their segments: three
    times the reach of the usual window, so that it is cut in blocks. The last array is above 0
    where logits count; what an encoder computes for padding is never used.
    """
    random = np.random.default_rng(0)
    length = min(200, sizes.max_length) if isinstance(sizes, EncoderSizes) else 24
    ids = random.integers(2, sizes.vocab_size, (2, length), dtype=np.int32)
    if isinstance(sizes, BertSizes):  # not RoBERTa's padding, by which positions are counted
        ids -= ids == sizes.position_offset - 1
    segments = np.ones_like(ids)
    segments[1:, length - length // 3 :] = 0
    if isinstance(sizes, EncoderSizes):
        return {"encoder_input_tokens": ids, "encoder_segment_ids": segments}
    targets = random.integers(2, sizes.vocab_size, (2, 16), dtype=np.int32)
    return {
        "encoder_input_tokens": ids * segments,
        "decoder_input_tokens": np.pad(targets[:, :-1], ((0, 0), (1, 0))),
        "decoder_target_tokens": targets,
    }


def rounded(
    tree: t5x_params.Tree, dtype: str, less: Mapping[str, float] | None = None
) -> t5x_params.Tree:
    """Return the tree with its values rounded to `dtype`.

    A folder may hold smaller values than the tree, by `less` for each T5X path. They are rounded as
    the folder holds them.
    """
    if dtype == "float32":
        return tree

    def cast(array: LazyArray, less: np.float32) -> LazyArray:
        def fetch(index: Index) -> np.ndarray:
            held = (array.read(index) - less).astype(DTYPES[dtype])
            return held.astype(np.float32) + less

        return LazyArray(array.shape, np.dtype(np.float32), fetch)

    of = less or {}
    return {name: cast(array, np.float32(of.get(name, 0.0))) for name, array in tree.items()}


def trainer_logits(
    paths: list[str], sizes: Sizes, dtype: str, batch: dict[str, np.ndarray]
) -> np.ndarray:
    """Return the logits of a checkpoint, or the mean of several, rounded to `dtype`."""
    scaled = weight_map.scale_output
    tensors = weight_map.tensors(sizes)
    less = {source: tensor.less for tensor in tensors for source in tensor.sources}
    weights = rounded(scaled(t5x_params.open_tree(paths), 1 / sizes.output_scale), dtype, less)
    return t5x_logits.trainer_logits(scaled(weights, sizes.output_scale), sizes, batch)


def compare(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the largest difference of logits; raise UserError if it is too large."""
    if not np.isfinite(theirs).all():
        raise UserError("PyTorch's logits", why="are not finite, so the weights are wrong")
    difference = float(np.abs(ours - theirs).max())
    allowed = TOLERANCE * max(1.0, float(np.abs(ours).max()))
    if not difference <= allowed:
        raise UserError(
            "PyTorch's logits",
            why=f"differ from the trainer's by {difference:.3g}, more than {allowed:.3g}, so the "
            "conversion is wrong, and nothing was written",
        )
    return difference


def verify(
    folder: Path,
    paths: list[str],
    sizes: Sizes,
    dtype: str = "float32",
    vocabulary: Vocabulary | None = None,
    texts: Sequence[str] = (),
) -> dict[str, Any]:
    """Compare a folder, loaded with transformers, with the trainer's network.

    Args:
      folder: holds the converted or published model.
      paths: the checkpoint, or those whose mean the folder is.
      sizes: of the network.
      dtype: of the folder. A bfloat16 folder is compared with the trainer's weights rounded alike,
        and its difference from the unrounded ones is reported.
      vocabulary: whose ids the folder's tokenizer must give, if it has one.
      texts: inputs whose outputs are returned as `examples`.

    Raises:
      UserError: names, shapes, logits or ids differ.
    """
    facts: dict[str, Any] = {}
    if vocabulary:
        facts["tokenizer_texts"] = same_ids.compare(vocabulary, folder, odd_texts()).texts
    batch = probe_batch(sizes)
    *_, counted = batch.values()
    real = counted > 0
    model = torch_logits.load_network(folder, sizes)
    theirs = torch_logits.torch_logits(model, sizes, batch)[real]
    del model  # the trainer's weights take its place
    ours = trainer_logits(paths, sizes, dtype, batch)[real]
    facts["largest_difference"] = compare(ours, theirs)
    facts["largest_logit"] = float(np.abs(ours).max())
    if dtype != "float32":
        unrounded = trainer_logits(paths, sizes, "float32", batch)[real]
        facts["largest_difference_from_float32"] = float(np.abs(unrounded - theirs).max())
    if vocabulary:
        facts["examples"] = torch_logits.examples(folder, sizes, texts)
    return facts
