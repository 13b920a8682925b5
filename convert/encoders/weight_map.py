"""Which T5X tensors become which Hugging Face tensor of an encoder.

PyTorch's Linear keeps its weight as [out, in] where T5X keeps [in, out]. ModernBERT has queries,
keys and values in one tensor, `Wqkv` [3 D, D], and both inner kernels in another, `Wi` [2 F, D].
T5X paths are those of checkpoints, where layers are apart.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from convert.encoders.sizes import EncoderSizes


class EncoderTensor(NamedTuple):
    """A Hugging Face tensor, and the T5X tensors, equal in shape, that it holds in order."""

    target: str
    sources: tuple[str, ...]
    shape: tuple[int, ...]  # of each source, in T5X's order

    @property
    def transposed(self) -> bool:
        """Whether PyTorch has [out, in] for [in, out]: every matrix that is not a table."""
        return len(self.shape) == 2 and not self.sources[0].endswith("/embedding")

    @property
    def torch_shape(self) -> tuple[int, ...]:
        """Shape in model.safetensors."""
        one = self.shape[::-1] if self.transposed else self.shape
        return (len(self.sources) * one[0], *one[1:])

    def joined(self, arrays: list[np.ndarray]) -> np.ndarray:
        """Return the Hugging Face tensor of the sources' values."""
        return np.concatenate([x.T if self.transposed else x for x in arrays])

    def split(self, array: np.ndarray) -> list[np.ndarray]:
        """Return the values of each source, in T5X's order, of a Hugging Face tensor."""
        parts = np.split(array, len(self.sources))
        return [x.T if self.transposed else x for x in parts]


Rows = Iterator[tuple[str, tuple[str, ...], tuple[int, ...]]]


def _dense(target: str, source: str, inputs: int, outputs: int) -> Rows:
    yield f"{target}.weight", (f"{source}/kernel",), (inputs, outputs)
    yield f"{target}.bias", (f"{source}/bias",), (outputs,)


def _norm(target: str, source: str, width: int, bias: bool = True) -> Rows:
    yield f"{target}.weight", (f"{source}/scale",), (width,)
    if bias:
        yield f"{target}.bias", (f"{source}/bias",), (width,)


def _bert(s: EncoderSizes) -> Rows:
    base, d, v = s.family.split("-")[-1], s.emb_dim, s.vocab_size
    tables = {
        "word": ("token", v),
        "position": ("position", s.max_length + s.position_offset),
        "token_type": ("type", s.type_vocab_size),
    }
    for theirs, (ours, rows) in tables.items():
        source = f"{ours}_embedder/embedding"
        yield f"{base}.embeddings.{theirs}_embeddings.weight", (source,), (rows, d)
    yield from _norm(f"{base}.embeddings.LayerNorm", "embeddings_norm", d)
    for i in range(s.num_layers):
        theirs, ours = f"{base}.encoder.layer.{i}", f"encoder/layers_{i}"
        for name in ("query", "key", "value"):
            yield from _dense(f"{theirs}.attention.self.{name}", f"{ours}/attention/{name}", d, d)
        yield from _dense(f"{theirs}.attention.output.dense", f"{ours}/attention/out", d, d)
        norm = f"{ours}/post_attention_layer_norm"
        yield from _norm(f"{theirs}.attention.output.LayerNorm", norm, d)
        yield from _dense(f"{theirs}.intermediate.dense", f"{ours}/mlp/wi", d, s.mlp_dim)
        yield from _dense(f"{theirs}.output.dense", f"{ours}/mlp/wo", s.mlp_dim, d)
        yield from _norm(f"{theirs}.output.LayerNorm", f"{ours}/post_mlp_layer_norm", d)
    head, norm, bias = "lm_head", "lm_head.layer_norm", "lm_head.bias"
    if s.family == "bert":
        head, bias = "cls.predictions.transform", "cls.predictions.bias"
        norm = f"{head}.LayerNorm"
    yield from _dense(f"{head}.dense", "mlm_head/dense", d, d)
    yield from _norm(norm, "mlm_head/norm", d)
    yield bias, ("mlm_head/bias",), (v,)
    if s.next_sentence:
        yield from _dense(f"{base}.pooler.dense", "pooler", d, d)
        yield from _dense("cls.seq_relationship", "nsp_head", d, 2)


def _modern(s: EncoderSizes) -> Rows:
    d, f, v = s.emb_dim, s.mlp_dim, s.vocab_size
    yield "model.embeddings.tok_embeddings.weight", ("token_embedder/embedding",), (v, d)
    yield from _norm("model.embeddings.norm", "embeddings_norm", d, bias=False)
    for i in range(s.num_layers):
        theirs, ours = f"model.layers.{i}", modern_layer(i, s.global_every)
        if i:
            norm = f"{ours}/pre_attention_layer_norm"
            yield from _norm(f"{theirs}.attn_norm", norm, d, bias=False)
        three = tuple(f"{ours}/attention/{name}/kernel" for name in ("query", "key", "value"))
        yield f"{theirs}.attn.Wqkv.weight", three, (d, d)
        yield f"{theirs}.attn.Wo.weight", (f"{ours}/attention/out/kernel",), (d, d)
        yield from _norm(f"{theirs}.mlp_norm", f"{ours}/pre_mlp_layer_norm", d, bias=False)
        two = tuple(f"{ours}/mlp/wi_{j}/kernel" for j in range(2))
        yield f"{theirs}.mlp.Wi.weight", two, (d, f)
        yield f"{theirs}.mlp.Wo.weight", (f"{ours}/mlp/wo/kernel",), (f, d)
    yield from _norm("model.final_norm", "encoder/encoder_norm", d, bias=False)
    yield "head.dense.weight", ("mlm_head/dense/kernel",), (d, d)
    yield from _norm("head.norm", "mlm_head/norm", d, bias=False)
    yield "decoder.bias", ("mlm_head/bias",), (v,)


def modern_layer(i: int, global_every: int) -> str:
    """Return the T5X path of ModernBERT's layer `i`: the first, or one of a group."""
    if i == 0:
        return "encoder/first_layer"
    group, place = divmod(i - 1, global_every)
    return f"encoder/layers_{group}/{'global' if place == global_every - 1 else f'local_{place}'}"


def tensors(sizes: EncoderSizes) -> list[EncoderTensor]:
    """Return every tensor of a network of these sizes."""
    return [EncoderTensor(*row) for row in (_modern if sizes.modern else _bert)(sizes)]


_OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
# Copies of other tensors, constants, and heads that no masked language model has.
_UNUSED = re.compile(
    r".*\.position_ids|.*\.rotary_emb\..*|(cls\.predictions\.|lm_head\.)?decoder\.weight"
    r"|(cls\.predictions|lm_head)\.decoder\.bias|roberta\.pooler\.dense\.(weight|bias)"
)


def present_name(name: str) -> str | None:
    """Return today's name of a published tensor, None for one that is not needed."""
    for old, new in _OLD_NAMES.items():
        name = name.replace(old, new)
    return None if _UNUSED.fullmatch(name) else name


def first_difference(
    found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]
) -> str | None:
    """Return which tensor is missing, unknown or of another shape, None if none is."""
    odd = sorted(found.keys() ^ wanted.keys())
    odd += [name for name in wanted if name in found and found[name] != wanted[name]]
    if not odd:
        return None
    there = list(found[odd[0]]) if odd[0] in found else "not there"
    should = list(wanted[odd[0]]) if odd[0] in wanted else "unknown"
    return f"{odd[0]} is {there}, and should be {should}"


def from_torch(arrays: Mapping[str, np.ndarray], sizes: EncoderSizes) -> dict[str, np.ndarray]:
    """Return the T5X tensors by path of Hugging Face arrays by name; for small models."""
    return {
        source: part
        for tensor in tensors(sizes)
        for source, part in zip(tensor.sources, tensor.split(arrays[tensor.target]), strict=True)
    }
