"""The logits of a folder by transformers, and its tokenizer's ids.

A small model is loaded as users load it, a large one block by block.
"""

import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from convert import tokenizer, weight_map
from convert.formats.hf_checkpoint_reader import HfCheckpoint
from convert.model_config import EXAMPLE_GENERATION, Sizes


def silence_transformers() -> None:
    """Keep transformers' warnings and bars off the terminal.

    It warns of heads that, rightly, are not tied or not needed.
    """
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def load_torch(folder: Path, layerwise: bool = False):
    """Return the converted model as transformers loads it, in float32.

    With `layerwise` its weights are read block by block while it runs. transformers 5 treats every
    umT5 as tied, and so scales its logits by emb_dim**-0.5, whatever its config.json says. It helps
    to set the field after loading; at loading it would leave the embeddings at random.
    """
    import torch
    from transformers import AutoModelForSeq2SeqLM

    silence_transformers()
    config = json.loads((folder / "config.json").read_text())
    if layerwise:
        model = _load_layerwise(folder)
    else:
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    if config["model_type"] == "umt5":
        model.config.tie_word_embeddings = config["tie_word_embeddings"]
    return model.eval()


def _load_layerwise(folder: Path):
    """Return the model with its weights on torch's meta device: shapes without numbers.

    The weights of a block are read when it runs, and dropped after. They stay where the file is
    mapped, if it holds float32, so the system can reclaim their pages.
    """
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    arrays = HfCheckpoint.open(folder).arrays
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = AutoModelForSeq2SeqLM.from_config(config, dtype=torch.float32)

    def fill(prefix: str, module):
        for name, parameter in list(module.named_parameters()):
            full = f"{prefix}.{name}"
            stored = arrays.get(full, arrays["shared.weight"])  # a tied one is saved once
            values = np.asarray(stored.read(), np.float32)
            if values.shape != tuple(parameter.shape):
                raise ValueError(f"{full} is {values.shape} in {folder}, not {parameter.shape}.")
            with warnings.catch_warnings():  # of a read-only tensor, which is never written
                warnings.simplefilter("ignore", UserWarning)
                tensor = torch.from_numpy(values)
            set_parameter(module, name, tensor)

    def empty(module):
        for name, parameter in list(module.named_parameters()):
            set_parameter(module, name, parameter.to("meta"))

    def set_parameter(module, name: str, tensor) -> None:
        path, _, leaf = name.rpartition(".")
        parameter = torch.nn.Parameter(tensor, requires_grad=False)
        setattr(module.get_submodule(path), leaf, parameter)

    for prefix, module in list(_units(model)):
        module.register_forward_pre_hook(lambda module, _, prefix=prefix: fill(prefix, module))
        module.register_forward_hook(lambda module, *_: empty(module))
    return model


def _units(model):
    """Yield the modules to fill and empty at once: blocks, and modules outside of them."""
    blocks = [*model.encoder.block, *model.decoder.block]
    inside = {id(child) for block in blocks for child in block.modules()}
    for name, module in model.named_modules():
        own = any(True for _ in module.parameters(recurse=False))
        if any(module is block for block in blocks) or (own and id(module) not in inside):
            yield name, module


class TorchOutputs(NamedTuple):
    """Logits, float32 [B, T, V], and what the model generates for some texts."""

    logits: np.ndarray
    texts: list[str]


def torch_outputs(
    folder: Path,
    sizes: Sizes,
    batch: dict[str, np.ndarray],
    layerwise: bool = False,
    vocabulary: tokenizer.TrainedVocabulary | None = None,
    texts: Sequence[str] = (),
) -> TorchOutputs:
    """Return the float32 logits of a folder by PyTorch, and its output for `texts`.

    Raise ValueError for other tensors than the table's, or other ids than the `vocabulary`'s.
    """
    import torch

    if vocabulary:
        tokenizer.assert_folder_has_same_ids(vocabulary, folder)
    model = load_torch(folder, layerwise)
    aliases = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    aliases |= {"lm_head.weight"} if sizes.tied else set()
    state = model.state_dict()
    names = {name: tuple(value.shape) for name, value in state.items() if name not in aliases}
    weight_map.guard_targets(weight_map.tensors(sizes), names)
    ids = torch.from_numpy(batch["encoder_input_tokens"]).long()
    shifted = torch.from_numpy(batch["decoder_input_tokens"]).long()
    with torch.inference_mode():
        out = model(input_ids=ids, attention_mask=(ids > 0).long(), decoder_input_ids=shifted)
    return TorchOutputs(out.logits.float().numpy(), generated(model, folder, texts))


def torch_logits(*args) -> np.ndarray:
    """Return the logits alone of `torch_outputs`."""
    return torch_outputs(*args).logits


def generated(model, folder: Path, texts: Sequence[str]) -> list[str]:
    """Return the model's greedy outputs, sentinels included, by the code that the card shows.

    Return none of them if one has an id that the tokenizer lacks, as untrained models may.
    """
    from transformers import AutoTokenizer

    if not texts:
        return []
    if model.device.type == "meta":  # the weights are read block by block, into the CPU
        import torch

        device = property(lambda _: torch.device("cpu"))
        model.__class__ = type("Layerwise", (type(model),), {"device": device})
    tokens: Any = AutoTokenizer.from_pretrained(folder)
    inputs = tokens(list(texts), return_tensors="pt", padding=True)
    ids = model.generate(**inputs, **EXAMPLE_GENERATION)
    if int(ids.max()) >= len(tokens):  # a row of the embedding that is no piece
        return []
    return [text.replace("<pad>", "").strip() for text in tokens.batch_decode(ids)]


def torch_outputs_isolated(*args) -> TorchOutputs:
    """Return `torch_outputs` in a process that does nothing else.

    transformers would import scipy and PIL for losses and images that no T5 has: 26 MB.
    """
    unused: dict[str, Any] = {"scipy": None, "PIL": None}
    sys.modules |= unused
    return torch_outputs(*args)
