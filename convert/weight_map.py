"""Which T5X tensor becomes which Hugging Face tensor: one table, four guards.

Letters of shapes: V vocab_size, D emb_dim, A num_heads x head_dim, F mlp_dim, H num_heads,
R relative position buckets. PyTorch's Linear keeps its weight as [out, in] where T5X keeps
[in, out]; Flax keeps T5X's order. The relative position table is [H, R] in T5X and [R, H] in
PyTorch and Flax.
"""

from collections.abc import Mapping
from typing import NamedTuple

from convert.sizes import Sizes


class TensorKind(NamedTuple):
    """Whether PyTorch and Flax transpose a tensor, and Flax's leaf name."""

    torch_transposes: bool
    flax_transposes: bool
    flax_leaf: str


KERNEL = TensorKind(torch_transposes=True, flax_transposes=False, flax_leaf="kernel")
TABLE = TensorKind(torch_transposes=True, flax_transposes=True, flax_leaf="embedding")
EMBEDDING = TensorKind(torch_transposes=False, flax_transposes=False, flax_leaf="embedding")
SCALE = TensorKind(torch_transposes=False, flax_transposes=False, flax_leaf="weight")


class MappedTensor(NamedTuple):
    """One row of the table, with its shape (T5X's order) for given sizes."""

    source: str
    target: str
    kind: TensorKind
    letters: str
    shape: tuple[int, ...]

    @property
    def torch_shape(self) -> tuple[int, ...]:
        """Shape in model.safetensors."""
        return self.shape[::-1] if self.kind.torch_transposes else self.shape

    @property
    def flax_path(self) -> str:
        """Path in the tree of flax_model.msgpack."""
        return "/".join([*self.target.split(".")[:-1], self.kind.flax_leaf])


# Rows are (T5X path, Hugging Face name, kind, letters); {i} counts layers.
_FIXED = (
    ("token_embedder/embedding", "shared.weight", EMBEDDING, "VD"),
    ("encoder/encoder_norm/scale", "encoder.final_layer_norm.weight", SCALE, "D"),
    ("decoder/decoder_norm/scale", "decoder.final_layer_norm.weight", SCALE, "D"),
)
_UNTIED = (("decoder/logits_dense/kernel", "lm_head.weight", KERNEL, "DV"),)
_ATTENTION = (
    ("query/kernel", "q.weight", KERNEL, "DA"),
    ("key/kernel", "k.weight", KERNEL, "DA"),
    ("value/kernel", "v.weight", KERNEL, "DA"),
    ("out/kernel", "o.weight", KERNEL, "AD"),
)
_PLAIN = (("wi/kernel", "wi.weight", KERNEL, "DF"), ("wo/kernel", "wo.weight", KERNEL, "FD"))
_GATED = (
    ("wi_0/kernel", "wi_0.weight", KERNEL, "DF"),
    ("wi_1/kernel", "wi_1.weight", KERNEL, "DF"),
    ("wo/kernel", "wo.weight", KERNEL, "FD"),
)
# A layer's parts, in the order of `layer.0`, `layer.1`, …: T5X's module and norm, HF's module.
_PARTS = {
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


def _layer_rows(stack: str, i: int, sizes: Sizes):
    for part, (module, norm, hf_module) in enumerate(_PARTS[stack]):
        source, target = f"{stack}/layers_{i}", f"{stack}.block.{i}.layer.{part}"
        mlp = _GATED if sizes.gated else _PLAIN
        for leaf, hf_leaf, kind, letters in mlp if module == "mlp" else _ATTENTION:
            yield f"{source}/{module}/{leaf}", f"{target}.{hf_module}.{hf_leaf}", kind, letters
        if hf_module == "SelfAttention" and (i == 0 or sizes.own_relative_bias):
            owner = source if sizes.own_relative_bias else stack
            table = f"{target}.SelfAttention.relative_attention_bias.weight"
            yield f"{owner}/relpos_bias/rel_embedding", table, TABLE, "HR"
        yield f"{source}/{norm}/scale", f"{target}.layer_norm.weight", SCALE, "D"


def tensors(sizes: Sizes) -> list[MappedTensor]:
    """Return every tensor of a network of these sizes, each target once."""
    rows = [*_FIXED, *(() if sizes.tied else _UNTIED)]
    depths = {"encoder": sizes.num_encoder_layers, "decoder": sizes.num_decoder_layers}
    for stack, depth in depths.items():
        rows += [row for i in range(depth) for row in _layer_rows(stack, i, sizes)]
    found: dict[str, MappedTensor] = {}
    for source, target, kind, letters in rows:
        if target in found:
            raise ValueError(f"{target} is set twice, by {found[target].source} and by {source}.")
        shape = tuple(sizes.letter(letter) for letter in letters)
        found[target] = MappedTensor(source, target, kind, letters, shape)
    return list(found.values())


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + rest


def guard(wanted: list[MappedTensor], sizes: Sizes, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError unless a checkpoint's `shapes`, by T5X path, are those of the table."""
    sources = {tensor.source for tensor in wanted}
    unknown = sorted(set(shapes) - sources)
    missing = sorted(sources - set(shapes))
    if unknown or missing:
        reasons = [f"no rule takes its {_some(unknown)}"] if unknown else []
        reasons += [f"it lacks {_some(missing)}"] if missing else []
        raise ValueError(
            f"The checkpoint is not the network that its configuration names ({sizes.summary()}): "
            f"{', and '.join(reasons)}. Give the trained network with --config."
        )
    for tensor in wanted:
        if tuple(shapes[tensor.source]) != tensor.shape:
            fields = ", ".join(sizes.field(letter) for letter in tensor.letters)
            raise ValueError(
                f"{tensor.source} has shape {list(shapes[tensor.source])}, but {fields} need "
                f"{list(tensor.shape)}: give the trained network with --config."
            )


def guard_targets(wanted: list[MappedTensor], names: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError unless a model's shapes, `names` by Hugging Face name, are the table's."""
    targets = {tensor.target: tensor.torch_shape for tensor in wanted}
    unknown = sorted(set(targets) - set(names))
    unset = sorted(set(names) - set(targets))
    if unknown or unset:
        reasons = [f"has no {_some(unknown)}"] if unknown else []
        reasons += [f"would keep {_some(unset)} at random"] if unset else []
        raise ValueError(f"The transformers model {' and '.join(reasons)}: its layout has changed.")
    for target, shape in targets.items():
        if tuple(names[target]) != shape:
            raise ValueError(
                f"{target} is {list(shape)} here and {list(names[target])} in transformers."
            )
