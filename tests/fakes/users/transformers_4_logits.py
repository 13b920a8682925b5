"""transformers 4: the logits of folders, by PyTorch and, where there are Flax weights, by Flax.

Each folder has batch.npz, and receives pytorch.npy and flax.npy.
"""

import sys
from pathlib import Path

import jax
import numpy as np
import torch
import transformers


def model_class(folder, prefix=""):
    """Return the class that config.json names, which users get from an `Auto…` class."""
    (architecture,) = transformers.AutoConfig.from_pretrained(folder).architectures
    return getattr(transformers, prefix + architecture)


def torch_logits(folder, arrays):
    """Return what PyTorch computes; no weight may be drawn or left."""
    model, faults = model_class(folder).from_pretrained(folder, output_loading_info=True)
    assert not any(map(len, faults.values())), faults
    with torch.inference_mode():
        out = model(**{name: torch.from_numpy(array).long() for name, array in arrays.items()})
    if "prediction_logits" not in out:
        return out.logits.numpy()
    next_sentence = out.seq_relationship_logits[:, None].expand(*arrays["input_ids"].shape, -1)
    return torch.cat([out.prediction_logits, next_sentence], dim=-1).numpy()


def flax_logits(folder, arrays):
    """Return what Flax computes, without random parameters, whose program compiles for seconds."""
    model, params = model_class(folder, "Flax").from_pretrained(folder, _do_init=False)
    return jax.jit(lambda params: model(**arrays, params=params).logits)(params)


for folder in map(Path, sys.argv[1:]):
    with np.load(folder / "batch.npz") as file:
        batch = {name: file[name] for name in file.files}
    np.save(folder / "pytorch.npy", torch_logits(folder, batch))
    if (folder / "flax_model.msgpack").exists():
        np.save(folder / "flax.npy", flax_logits(folder, batch))
