"""Parameters of small random networks, as a checkpoint holds them."""

import json
import shutil

import numpy as np
import pytest

from convert import to_hf, weight_map
from convert.formats import t5x_checkpoint_writer
from convert.run.rewrite import gin_of
from convert.sizes import BertSizes, ModernBertSizes, Sizes, T5Gemma2Sizes, T5Sizes
from fakes.paths import GOLDEN
from t5x.checkpointing import lazy_array
from tasks import vocabularies

SMALL = {
    "vocab_size": 96,
    "emb_dim": 16,
    "num_heads": 2,
    "head_dim": 12,  # so that heads x head_dim is not emb_dim
    "mlp_dim": 40,
    "num_encoder_layers": 3,
    "num_decoder_layers": 2,
}
FAMILIES = {
    "t5_1_0": T5Sizes(**SMALL, logits_via_embedding=True),
    "t5_1_1": T5Sizes(**SMALL, mlp_activations=("gelu", "linear")),
    "umt5": T5Sizes(**SMALL, mlp_activations=("gelu", "linear"), own_relative_bias=True),
}

_NARROW = {"emb_dim": 8, "num_heads": 2, "head_dim": 4, "mlp_dim": 8, "num_decoder_layers": 1}
GATED = {"mlp_activations": ("gelu", "linear")}
NETWORKS = FAMILIES | {
    "mt5": T5Sizes(250_112, **_NARROW, **GATED, num_encoder_layers=1),
    "byt5": T5Sizes(384, **_NARROW, **GATED, num_encoder_layers=3),
    "gelu": T5Sizes(96, **_NARROW, mlp_activations=("gelu",)),
    "tied 1.1": T5Sizes(96, **_NARROW, **GATED, logits_via_embedding=True),
    "deeper decoder": T5Sizes(
        96, **_NARROW | {"num_decoder_layers": 3}, **GATED, num_encoder_layers=1
    ),
    "t5gemma2": T5Gemma2Sizes(**SMALL, num_kv_heads=1),
    "tied umt5": T5Sizes(96, **_NARROW, **GATED, logits_via_embedding=True, own_relative_bias=True),
}


_SHORT = {"emb_dim": 8, "num_heads": 2, "mlp_dim": 12, "max_length": 64, "vocab_size": 2048}
ENCODERS = {
    "bert": BertSizes(num_layers=2, next_sentence=False, **_SHORT),
    "roberta": BertSizes(num_layers=2, position_offset=2, next_sentence=False, **_SHORT),
    "modernbert": ModernBertSizes(num_layers=4, local_window=8, **_SHORT),
}


def arrays(sizes: Sizes, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random float32 parameters by T5X path."""
    rng = np.random.default_rng(seed)
    return {
        source: rng.normal(0.5, 0.3, tensor.shape).astype(np.float32)
        if len(tensor.shape) == 1
        else rng.normal(0, 0.3, tensor.shape).astype(np.float32)
        for tensor in weight_map.tensors(sizes)
        for source in tensor.sources
    }


def tree(values: dict[str, np.ndarray]) -> dict[str, lazy_array.LazyArray]:
    """The same as arrays that are read on request."""
    return {name: lazy_array.from_numpy(value) for name, value in values.items()}


def write_folder(folder, sizes: Sizes, values: dict[str, np.ndarray], dtype="float32") -> None:
    """Write a network's model.safetensors and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(sizes.config()))
    options = to_hf.ConversionOptions(sizes=sizes, out=folder, dtype=dtype, formats=("pytorch",))
    to_hf.write_weights(folder, tree(values), sizes, options)


def write_run(folder, sizes: Sizes, values: dict[str, np.ndarray] | None = None, step: int = 3):
    """Write a run with a checkpoint and its gin; return the checkpoint's folder."""
    values = arrays(sizes) if values is None else values
    checkpoint = folder / f"checkpoint_{step}"
    state = {f"target/{name}": array for name, array in tree(values).items()}
    t5x_checkpoint_writer.write(checkpoint, state)
    (folder / "config.gin").write_text(gin_of(sizes))
    return checkpoint


def refusal(capsys, *arguments) -> str:
    """Return the one line that the converter prints when it refuses its arguments."""
    from convert import __main__ as converter

    capsys.readouterr()
    with pytest.raises(SystemExit):
        converter.main([str(argument) for argument in arguments])
    message = capsys.readouterr().err.strip()
    assert "\n" not in message
    return message


def golden_sizes(name: str) -> T5Sizes:
    """The sizes of a golden network."""
    return T5Sizes.from_fields(json.loads((GOLDEN / name / "config.json").read_text())["config"])


def golden_gin(name: str) -> str:
    """The gin that binds a golden network's T5Config."""
    config = json.loads((GOLDEN / name / "config.json").read_text())["config"]
    lines = [f"network.T5Config.{field} = {value!r}" for field, value in config.items()]
    return "from t5x.examples.t5 import network\n" + "\n".join(lines) + "\n"


def golden_run(folder) -> None:
    """Copy the golden legacy checkpoint into a run with its gin."""
    shutil.copytree(GOLDEN / "t5_1_1" / "legacy" / "checkpoint_25", folder / "checkpoint_25")
    (folder / "config.gin").write_text(golden_gin("t5_1_1"))


def write_encoder_folder(folder, family: str):
    """Writes a Hugging Face folder of random weights, with a tokenizer; returns the folder."""
    shutil.copytree(vocabularies.resolve("data/ro_mini/wordpiece"), folder)
    write_folder(folder, ENCODERS[family], arrays(ENCODERS[family]))
    return folder
