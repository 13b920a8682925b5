"""A transformers model larger than memory: each block's weights come when it runs, and go after.

    model = load(folder)                    # on torch's meta device: shapes, no numbers
    model(input_ids=…, decoder_input_ids=…).logits

Arithmetic is float32 whatever the file holds.
"""

import warnings
from pathlib import Path

import numpy as np

from convert.formats.hf_checkpoint_reader import Published


def _units(model):
    """Modules that are filled and emptied as a whole: blocks, and what stands outside of them."""
    blocks = [*model.encoder.block, *model.decoder.block]
    inside = {id(child) for block in blocks for child in block.modules()}
    for name, module in model.named_modules():
        own = any(True for _ in module.parameters(recurse=False))
        if any(module is block for block in blocks) or (own and id(module) not in inside):
            yield name, module


def _source(name: str, arrays) -> str:
    """The tensor in the file behind a parameter: a tied one stands there once."""
    return name if name in arrays else "shared.weight"


def load(folder: Path):
    """The folder's model, ready to answer, holding one block's weights at a time."""
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    published = Published.open(folder)
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = AutoModelForSeq2SeqLM.from_config(config, dtype=torch.float32)

    def fill(prefix: str, module):
        for name, parameter in list(module.named_parameters()):
            full = f"{prefix}.{name}"
            # Float32 stays where the file is mapped: the system takes such pages back at need.
            stored = published.arrays[_source(full, published.arrays)].read()
            values = np.asarray(stored, np.float32)
            if values.shape != tuple(parameter.shape):
                raise ValueError(f"{full} is {values.shape} in {folder}, not {parameter.shape}.")
            with warnings.catch_warnings():  # of a tensor that must not be written, and is not
                warnings.simplefilter("ignore", UserWarning)
                tensor = torch.from_numpy(values)
            _put(module, name, torch.nn.Parameter(tensor, requires_grad=False))

    def empty(module):
        for name, parameter in list(module.named_parameters()):
            _put(module, name, torch.nn.Parameter(parameter.to("meta"), requires_grad=False))

    for prefix, module in list(_units(model)):
        module.register_forward_pre_hook(lambda module, _, prefix=prefix: fill(prefix, module))
        module.register_forward_hook(lambda module, *_: empty(module))
    return model.eval()


def _put(module, name: str, parameter) -> None:
    *parents, leaf = name.split(".")
    owner = module.get_submodule(".".join(parents))
    setattr(owner, leaf, parameter)
