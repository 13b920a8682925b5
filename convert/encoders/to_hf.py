"""Convert an encoder's checkpoint to a Hugging Face folder, and compare the logits.

facts = write(folder, [".../checkpoint_1000"], sizes, TokenizerFolder(".../tokenizer"), "float32")

writes `model.safetensors`, `config.json` and the tokenizer's files, which `AutoModelForMaskedLM`
and the fill-mask pipeline load.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convert.atomic_output import write_json
from convert.card import ModelCard
from convert.encoders import logits, weight_map
from convert.encoders.from_hf import check_parameter
from convert.encoders.sizes import EncoderSizes, hugging_face_config
from convert.encoders.tokenizer_folder import TokenizerFolder
from convert.formats import safetensors_writer
from convert.proof.verify import compare
from convert.t5x_params import Tree, open_tree
from t5x.checkpointing.lazy_array import Index, LazyArray


def check_network(tree: Tree, sizes: EncoderSizes) -> int:
    """Return the number of parameters; raise ValueError unless the tree is this network."""
    shapes = {name: tuple(array.shape) for name, array in tree.items()}
    wanted = {source: t.shape for t in weight_map.tensors(sizes) for source in t.sources}
    if difference := weight_map.first_difference(shapes, wanted):
        raise ValueError(
            f"The checkpoint is not the network of its gin ({sizes.summary()}): {difference}."
        )
    return sum(math.prod(shape) for shape in wanted.values())


def config_of(sizes: EncoderSizes, tokenizer: TokenizerFolder | None, dtype: str) -> dict[str, Any]:
    """Return config.json; raise ValueError if the tokenizer does not fit the network."""
    # transformers' own ids are those of large vocabularies.
    ids = {f"{role}_token_id": 0 for role in ("pad", "cls", "sep", "bos", "eos")}
    pad = sizes.position_offset - 1
    if sizes.position_offset:
        ids["pad_token_id"] = pad
    if tokenizer:
        if tokenizer.vocab_size > sizes.vocab_size:
            raise ValueError(
                f"{tokenizer.path} has {tokenizer.vocab_size} ids and the embedding "
                f"{sizes.vocab_size} rows, so the model was not trained with it: give the trained "
                "one with --vocabulary."
            )
        named = tokenizer.special_ids()
        pairs = {"bos": "cls", "eos": "sep"}
        as_bert = {f"{a}_token_id": named.get(f"{b}_token_id", 0) for a, b in pairs.items()}
        ids |= as_bert | named
        if sizes.position_offset and ids["pad_token_id"] != pad:
            raise ValueError(
                f"{tokenizer.path} pads with id {ids['pad_token_id']}, but transformers counts the "
                f"positions of a RoBERTa from its padding, which must be {pad}; train with such a "
                "tokenizer, or with position_offset 0."
            )
    return hugging_face_config(sizes) | ids | {"torch_dtype": dtype}


def write(
    folder: Path,
    paths: list[str],
    sizes: EncoderSizes,
    tokenizer: TokenizerFolder | None,
    dtype: str,
    shard_bytes: int = 5 * 10**9,
    verify: bool = True,
    texts: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the folder of a checkpoint or of the mean of several; return what the record says.

    The logits of the trainer and of transformers are compared, unless `verify` is False, and the
    masks of `texts` filled in. Raise ValueError if anything differs.
    """
    tree, wanted = open_tree(paths), weight_map.tensors(sizes)
    arrays = {tensor.target: _joined(tree, tensor) for tensor in wanted}
    safetensors_writer.write(folder, arrays, dtype, shard_bytes)
    write_json(folder / "config.json", config_of(sizes, tokenizer, dtype))
    if tokenizer:
        tokenizer.write(folder)
    if not verify:
        return {"proof": None}
    batch = logits.probe_batch(sizes)
    theirs = logits.torch_logits(folder, batch)
    ours = logits.trainer_logits(paths, sizes, batch, dtype)
    real = batch["encoder_segment_ids"] > 0
    proof = {
        "largest_difference": compare(ours[real], theirs[real]),
        "largest_logit": float(np.abs(ours[real]).max()),
    }
    if dtype != "float32":
        unrounded = logits.trainer_logits(paths, sizes, batch, "float32")
        proof["largest_difference_from_float32"] = float(np.abs(unrounded - theirs)[real].max())
    examples: list[list[str]] = []
    if tokenizer and texts:
        examples = logits.filled(folder, list(texts))
    return {"proof": proof, "examples": examples}


def _joined(tree: Tree, tensor: weight_map.EncoderTensor) -> LazyArray:
    """Return a Hugging Face tensor with the values of its sources checked when it is read."""

    def fetch(index: Index) -> np.ndarray:
        arrays = [np.asarray(tree[source].read(), np.float32) for source in tensor.sources]
        for source, array in zip(tensor.sources, arrays, strict=True):
            check_parameter(source, tensor, array)
        return tensor.joined(arrays)[index]

    return LazyArray(tensor.torch_shape, np.dtype(np.float32), fetch)


class EncoderCard(ModelCard):
    """The card of an encoder."""

    sizes: EncoderSizes  # type: ignore[assignment]

    pipeline_tag = "fill-mask"
    tokenizers = "`AutoTokenizer` (ids are the trainer's)"

    def _network(self) -> str:
        return self.sizes.summary()

    def _tags(self) -> list[str]:
        return [self.record["family"], "t5x"]

    def _usage(self) -> list[str]:
        name = self.record["metadata"].get("repository") or self.name
        lines = ["## Use", "", "```python", "from transformers import pipeline", ""]
        if not self.record["tokenizer"]:
            lines[3] = "from transformers import AutoModelForMaskedLM"
            lines.append(f"model = AutoModelForMaskedLM.from_pretrained({name!r})")
            return [*lines, "```", ""]
        lines.append(f'fill = pipeline("fill-mask", "{name}")')
        examples = self.record.get("examples") or []
        lines += [f"fill({text!r})" for text, _ in examples]
        shown = [f"- {text} → {output}" for text, output in examples]
        return [*lines, "```", "", *shown, *([""] if shown else [])]
