"""Maps T5X tensors to Hugging Face tensors: one table, four guards.

A row of the table is (Hugging Face name, T5X path or paths, letters of the shape in T5X). Letters:
V vocab_size, D emb_dim, A num_heads x head_dim, F mlp_dim, H num_heads, R buckets of distances, P
positions, Y types of tokens, C classes, G num_kv_heads x head_dim, K head_dim. Several paths are
concatenated in one tensor, as ModernBERT's queries, keys and values in `Wqkv`. T5Gemma 2 keeps the
scale of a norm less 1.

PyTorch's Linear keeps its weight as [out, in] where T5X and Flax keep [in, out]. The table of
relative positions is [H, R] in T5X and [R, H] in both others. T5X paths are as in checkpoints,
where layers are apart.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from common.errors import UserError
from common.tables import first_names
from convert.sizes import BertSizes, ModernBertSizes, Sizes, T5Gemma2Sizes, T5Sizes
from t5x.checkpointing.lazy_array import LazyArray

V = TypeVar("V")
Tree: TypeAlias = Mapping[str, LazyArray]  # parameters by T5X path
_LAST_NORM = "decoder/decoder_norm/scale"
Shapes = Mapping[str, tuple[int, ...]]
# Names in T5's networks; tables are `embedding`.
_FLAX_LEAVES = {"kernel": "kernel", "scale": "weight"}


class MappedTensor(NamedTuple):
    """One row of the table, with the shape of each source (T5X's order) for given sizes."""

    target: str
    sources: tuple[str, ...]
    letters: str
    shape: tuple[int, ...]
    less: float = 0.0  # T5X's values minus PyTorch's

    @property
    def _leaf(self) -> str:
        return self.sources[0].rpartition("/")[2]

    @property
    def torch_transposes(self) -> bool:
        """Whether PyTorch has the axes of each source the other way round."""
        return self._leaf in ("kernel", "rel_embedding")

    @property
    def torch_shape(self) -> tuple[int, ...]:
        """Shape in model.safetensors."""
        shape = self.shape[::-1] if self.torch_transposes else self.shape
        return (len(self.sources) * shape[0], *shape[1:])

    @property
    def flax_path(self) -> str:
        """Path in the tree of flax_model.msgpack, of a T5."""
        leaf = _FLAX_LEAVES.get(self._leaf, "embedding")
        return "/".join([*self.target.split(".")[:-1], leaf])

    @property
    def flax_shape(self) -> tuple[int, ...]:
        """Shape in flax_model.msgpack."""
        return self.shape[::-1] if self._leaf == "rel_embedding" else self.shape

    def to_torch(self, values: list[np.ndarray]) -> np.ndarray:
        """Return the Hugging Face tensor of the sources' values."""
        values = [x - np.float32(self.less) for x in values] if self.less else values
        parts = [x.T if self.torch_transposes else x for x in values]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def to_flax(self, values: list[np.ndarray]) -> np.ndarray:
        """Return the tensor of flax_model.msgpack of the only source's value."""
        return values[0].T if self._leaf == "rel_embedding" else values[0]

    def from_torch(self, value: np.ndarray) -> list[np.ndarray]:
        """Return the values of each source of a Hugging Face tensor."""
        value = value.astype(np.float32) + np.float32(self.less) if self.less else value
        parts = np.split(value, len(self.sources))
        return [x.T if self.torch_transposes else x for x in parts]


Rows = Iterator[tuple[str, str | tuple[str, ...], str]]
# A T5 layer's parts, in the order of `layer.0`, `layer.1`, …: T5X's module and norm, HF's module.
_T5_PARTS = {
    "encoder": (
        ("attention", "pre_attention_layer_norm", "SelfAttention"),
        ("mlp", "pre_mlp_layer_norm", "DenseReluDense"),
    ),
    "decoder": (
        ("self_attention", "pre_self_attention_layer_norm", "SelfAttention"),
        ("encoder_decoder_attention", "pre_cross_attention_layer_norm", "EncDecAttention"),
        ("mlp", "pre_mlp_layer_norm", "DenseReluDense"),
    ),
}


def _t5(s: T5Sizes) -> Rows:
    yield "shared.weight", "token_embedder/embedding", "VD"
    if not s.tied:
        yield "lm_head.weight", "decoder/logits_dense/kernel", "DV"
    for stack, depth in (("encoder", s.num_encoder_layers), ("decoder", s.num_decoder_layers)):
        yield f"{stack}.final_layer_norm.weight", f"{stack}/{stack}_norm/scale", "D"
        for i in range(depth):
            yield from _t5_layer(s, stack, i)


def _t5_layer(s: T5Sizes, stack: str, i: int) -> Rows:
    for part, (module, norm, hf_module) in enumerate(_T5_PARTS[stack]):
        source, target = f"{stack}/layers_{i}", f"{stack}.block.{i}.layer.{part}"
        if module == "mlp":
            for name in ("wi_0", "wi_1") if s.gated else ("wi",):
                yield f"{target}.{hf_module}.{name}.weight", f"{source}/mlp/{name}/kernel", "DF"
            yield f"{target}.{hf_module}.wo.weight", f"{source}/mlp/wo/kernel", "FD"
        else:
            for name in ("query", "key", "value", "out"):
                letter, letters = ("o", "AD") if name == "out" else (name[0], "DA")
                path = f"{source}/{module}/{name}/kernel"
                yield f"{target}.{hf_module}.{letter}.weight", path, letters
        if hf_module == "SelfAttention" and (i == 0 or s.own_relative_bias):
            owner = source if s.own_relative_bias else stack
            table = f"{target}.SelfAttention.relative_attention_bias.weight"
            yield table, f"{owner}/relpos_bias/rel_embedding", "HR"
        yield f"{target}.layer_norm.weight", f"{source}/{norm}/scale", "D"


def _dense(target: str, source: str, letters: str) -> Rows:
    yield f"{target}.weight", f"{source}/kernel", letters
    yield f"{target}.bias", f"{source}/bias", letters[1]


def _norm(target: str, source: str) -> Rows:
    yield f"{target}.weight", f"{source}/scale", "D"
    yield f"{target}.bias", f"{source}/bias", "D"


def _bert(s: BertSizes) -> Rows:
    base = s.family.split("-")[-1]
    for theirs, ours, rows in (
        ("word", "token", "V"),
        ("position", "position", "P"),
        ("token_type", "type", "Y"),
    ):
        table = f"{base}.embeddings.{theirs}_embeddings.weight"
        yield table, f"{ours}_embedder/embedding", f"{rows}D"
    yield from _norm(f"{base}.embeddings.LayerNorm", "embeddings_norm")
    for i in range(s.num_layers):
        theirs, ours = f"{base}.encoder.layer.{i}", f"encoder/layers_{i}"
        for name in ("query", "key", "value"):
            yield from _dense(f"{theirs}.attention.self.{name}", f"{ours}/attention/{name}", "DA")
        yield from _dense(f"{theirs}.attention.output.dense", f"{ours}/attention/out", "AD")
        norm = f"{ours}/post_attention_layer_norm"
        yield from _norm(f"{theirs}.attention.output.LayerNorm", norm)
        yield from _dense(f"{theirs}.intermediate.dense", f"{ours}/mlp/wi", "DF")
        yield from _dense(f"{theirs}.output.dense", f"{ours}/mlp/wo", "FD")
        yield from _norm(f"{theirs}.output.LayerNorm", f"{ours}/post_mlp_layer_norm")
    head, norm, bias = "lm_head", "lm_head.layer_norm", "lm_head.bias"
    if s.family == "bert":
        head, bias = "cls.predictions.transform", "cls.predictions.bias"
        norm = f"{head}.LayerNorm"
    yield from _dense(f"{head}.dense", "mlm_head/dense", "DD")
    yield from _norm(norm, "mlm_head/norm")
    yield bias, "mlm_head/bias", "V"
    if s.next_sentence:
        yield from _dense(f"{base}.pooler.dense", "pooler", "DD")
        yield from _dense("cls.seq_relationship", "nsp_head", "DC")


def _modern_bert(s: ModernBertSizes) -> Rows:
    yield "model.embeddings.tok_embeddings.weight", "token_embedder/embedding", "VD"
    yield "model.embeddings.norm.weight", "embeddings_norm/scale", "D"
    for i in range(s.num_layers):
        theirs, ours = f"model.layers.{i}", _modern_bert_layer(i, s.global_every)
        if i:
            yield f"{theirs}.attn_norm.weight", f"{ours}/pre_attention_layer_norm/scale", "D"
        three = tuple(f"{ours}/attention/{name}/kernel" for name in ("query", "key", "value"))
        yield f"{theirs}.attn.Wqkv.weight", three, "DA"
        yield f"{theirs}.attn.Wo.weight", f"{ours}/attention/out/kernel", "AD"
        yield f"{theirs}.mlp_norm.weight", f"{ours}/pre_mlp_layer_norm/scale", "D"
        yield f"{theirs}.mlp.Wi.weight", tuple(f"{ours}/mlp/wi_{j}/kernel" for j in (0, 1)), "DF"
        yield f"{theirs}.mlp.Wo.weight", f"{ours}/mlp/wo/kernel", "FD"
    yield "model.final_norm.weight", "encoder/encoder_norm/scale", "D"
    yield "head.dense.weight", "mlm_head/dense/kernel", "DD"
    yield "head.norm.weight", "mlm_head/norm/scale", "D"
    yield "decoder.bias", "mlm_head/bias", "V"


def _modern_bert_layer(i: int, global_every: int) -> str:
    """Return the T5X path of layer `i`: the first, or one of a group that ends globally."""
    if i == 0:
        return "encoder/first_layer"
    group, place = divmod(i - 1, global_every)
    return f"encoder/layers_{group}/{'global' if place == global_every - 1 else f'local_{place}'}"


def _t5gemma2(s: T5Gemma2Sizes) -> Rows:
    yield "model.encoder.embed_tokens.weight", "token_embedder/embedding", "VD"
    for stack, depth in (("encoder", s.num_encoder_layers), ("decoder", s.num_decoder_layers)):
        yield f"model.{stack}.norm.weight", f"{stack}/{stack}_norm/scale", "D"
        for i in range(depth):
            theirs, ours = f"model.{stack}.layers.{i}", f"{stack}/layers_{i}"
            for name, letters in {"query": "DA", "key": "DG", "value": "DG", "out": "AD"}.items():
                target = f"{theirs}.self_attn.{name[0]}_proj.weight"
                yield target, f"{ours}/attention/{name}/kernel", letters
            for name in ("query", "key"):
                target = f"{theirs}.self_attn.{name[0]}_norm.weight"
                yield target, f"{ours}/attention/{name}_norm/scale", "K"
            for name, path in {"gate": "wi_0", "up": "wi_1", "down": "wo"}.items():
                letters = "FD" if name == "down" else "DF"
                yield f"{theirs}.mlp.{name}_proj.weight", f"{ours}/mlp/{path}/kernel", letters
            for place in ("pre", "post"):
                for name, path in {"self_attn": "attention", "feedforward": "mlp"}.items():
                    target = f"{theirs}.{place}_{name}_layernorm.weight"
                    yield target, f"{ours}/{place}_{path}_layer_norm/scale", "D"


def _rows(sizes: Sizes) -> Rows:
    if isinstance(sizes, T5Sizes):
        return _t5(sizes)
    if isinstance(sizes, T5Gemma2Sizes):
        return _t5gemma2(sizes)
    if isinstance(sizes, BertSizes):
        return _bert(sizes)
    assert isinstance(sizes, ModernBertSizes)
    return _modern_bert(sizes)


def tensors(sizes: Sizes) -> list[MappedTensor]:
    """Return every tensor of a network of these sizes; raise UserError if one is set twice."""
    by_target: dict[str, MappedTensor] = {}
    for target, source, letters in _rows(sizes):
        if target in by_target:
            raise UserError(
                target, why=f"is set twice, by {by_target[target].sources} and by {source}"
            )
        sources = (source,) if isinstance(source, str) else source
        shape = tuple(sizes.axis(letter) for letter in letters)
        less = sizes.norms_less if sources[0].endswith("norm/scale") else 0.0
        by_target[target] = MappedTensor(target, sources, letters, shape, less)
    return list(by_target.values())


def scale_output(tree: Tree, factor: float) -> Tree:
    """Return the parameters of a T5 whose logits are those of `tree`, times `factor`.

    The factor goes into the scale of the last norm, which multiplies the inputs of the head.
    """
    if factor == 1.0:
        return tree
    norm = tree[_LAST_NORM]
    fetch = lambda index: norm.read(index) * np.float32(factor)
    return {**tree, _LAST_NORM: LazyArray(norm.shape, np.dtype(np.float32), fetch)}


def guard_sources(sizes: Sizes, shapes: Shapes) -> None:
    """Raise UserError unless a checkpoint's shapes by T5X path equal the table's."""
    by_source = {source: tensor for tensor in tensors(sizes) for source in tensor.sources}
    owner, advice = "the checkpoint", "give the trained network with --config"
    _guard(sizes, shapes, by_source, lambda tensor: tensor.shape, owner, advice)


def guard_copies(named: Tree, tensors_by_name: Tree, owner: str) -> None:
    """Raise UserError if a copy in a published model's tensors has other values than the table's.

    transformers does not tie such a copy. `tensors_by_name` are those by the table's names.
    """
    for copy in COPIES.keys() & named.keys():
        table = tensors_by_name.get(COPIES[copy])
        if table and not np.array_equal(named[copy].read(), table.read()):
            raise UserError(
                owner,
                why=f"has other values in {copy} than in {COPIES[copy]}, and the trainer has one "
                "tensor for both",
            )


def guard_targets(sizes: Sizes, shapes: Shapes, owner: str) -> None:
    """Raise UserError unless the shapes by Hugging Face name of `owner` equal the table's."""
    by_target = {tensor.target: tensor for tensor in tensors(sizes)}
    advice = "take a complete model with its language-modelling head"
    _guard(sizes, shapes, by_target, lambda tensor: tensor.torch_shape, owner, advice)


def _guard(
    sizes: Sizes,
    shapes: Shapes,
    tensors_by_name: Mapping[str, MappedTensor],
    shape_of: Callable[[MappedTensor], tuple[int, ...]],
    owner: str,
    advice: str,
) -> None:
    unknown, missing = (
        sorted(shapes.keys() - tensors_by_name),
        sorted(tensors_by_name.keys() - shapes),
    )
    reasons = [f"no rule takes its {first_names(unknown, 2)}"] if unknown else []
    reasons += [f"it lacks {first_names(missing, 2)}"] if missing else []
    for name, shape in shapes.items() if not reasons else ():
        if tuple(shape) != (needed := shape_of(tensors_by_name[name])):
            fields = ", ".join(map(sizes.axis_fields, tensors_by_name[name].letters))
            reasons = [f"{name} has shape {[*shape]}, but {fields} need {[*needed]}"]
            break
    if reasons:
        raise UserError(
            owner,
            why=f"is not the network that its configuration names ({sizes.family}, "
            f"{sizes.summary()}): {', and '.join(reasons)}",
            to_set=advice,
        )


_OTHER_NAMES = {
    "LayerNorm.gamma": "LayerNorm.weight",
    "LayerNorm.beta": "LayerNorm.bias",
    "model.encoder.text_model.": "model.encoder.",  # in memory
}
# Copies that transformers ties to a tensor of the table.
COPIES = {
    "encoder.embed_tokens.weight": "shared.weight",
    "decoder.embed_tokens.weight": "shared.weight",
    "model.decoder.embed_tokens.weight": "model.encoder.embed_tokens.weight",
    "lm_head.out_proj.weight": "model.encoder.embed_tokens.weight",
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
    "decoder.weight": "model.embeddings.tok_embeddings.weight",
}
# What a T5Gemma 2 has for images.
IMAGES = re.compile(r"model\.encoder\.(vision_tower|multi_modal_projector)\..*|.*\.eoi_embedding")
# Constants, and parts that no language model uses.
_UNUSED = re.compile(
    f"{IMAGES.pattern}"
    r"|decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"
    r"|.*\.position_ids|.*\.rotary_emb\..*|roberta\.pooler\.dense\.(weight|bias)"
)
NEXT_SENTENCE = tuple(
    f"{module}.{leaf}"
    for module in ("bert.pooler.dense", "cls.seq_relationship")
    for leaf in ("weight", "bias")
)


def present(named: Mapping[str, V], sizes: Sizes) -> dict[str, V]:
    """Return a published model's tensors by the table's names.

    Copies, and parts that a network of these sizes does not have, are left out. A T5's embedding
    that was saved only under another name gets the table's.
    """
    values = {}
    for name, value in named.items():
        for other, name_of_table in _OTHER_NAMES.items():
            name = name.replace(other, name_of_table)
        if name not in COPIES and not _UNUSED.fullmatch(name):
            values[name] = value
    if isinstance(sizes, T5Sizes):
        copies = [value for name, value in named.items() if COPIES.get(name) == "shared.weight"]
        values |= {"shared.weight": copies[0]} if copies and "shared.weight" not in values else {}
        absent: tuple[str, ...] = ("lm_head.weight",) if sizes.tied else ()
    else:
        absent = () if isinstance(sizes, BertSizes) and sizes.next_sentence else NEXT_SENTENCE
    return {name: value for name, value in values.items() if name not in absent}
