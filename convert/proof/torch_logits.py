"""What transformers makes of a folder: its logits on the fixed batch, its tokenizer's ids.

    theirs = torch_logits(folder, sizes)                  # float32 [B, T, V]
    theirs = torch_logits_alone(folder, sizes, True)      # in a process of its own

A small model is loaded as users load it, a large one block by block.
"""

import json
import sys
from pathlib import Path

import numpy as np

from convert import tokenizer, weight_map
from convert.model_config import Sizes
from convert.proof import layerwise_torch
from convert.proof.probe_batch import fixed_batch


def load_torch(folder: Path, streamed: bool = False):
    """The converted model as transformers loads it, in float32, ready to answer.

    With `streamed` its weights are read block by block while it runs.

    transformers 5 calls every umT5 tied, and so scales its logits by emb_dim**-0.5, whatever its
    config.json says. Setting it right after loading is what helps: at loading it would leave the
    embeddings of encoder and decoder at random.
    """
    import torch
    from transformers import AutoModelForSeq2SeqLM
    from transformers.utils import logging

    logging.set_verbosity_error()  # it warns of every head that is, rightly, not tied
    logging.disable_progress_bar()
    config = json.loads((folder / "config.json").read_text())
    if streamed:
        model = layerwise_torch.load(folder)
    else:
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    if config["model_type"] == "umt5":
        model.config.tie_word_embeddings = config["tie_word_embeddings"]
    return model.eval()


def torch_logits(
    folder: Path,
    sizes: Sizes,
    streamed: bool = False,
    trained: tokenizer.Trained | None = None,
) -> np.ndarray:
    """Float32 logits [B, T, V] of a folder by PyTorch, on the fixed batch.

    Raises:
      ValueError: where its model has other tensors than the table, or its tokenizer other ids than
        the `trained` vocabulary.
    """
    import torch

    if trained:
        tokenizer.assert_folder_has_same_ids(trained, folder)
    model = load_torch(folder, streamed)
    aliases = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    aliases |= {"lm_head.weight"} if sizes.tied else set()
    state = model.state_dict()
    names = {name: tuple(value.shape) for name, value in state.items() if name not in aliases}
    weight_map.guard_targets(weight_map.tensors(sizes), names)
    batch = fixed_batch(sizes)
    ids = torch.from_numpy(batch["encoder_input_tokens"]).long()
    shifted = torch.from_numpy(batch["decoder_input_tokens"]).long()
    with torch.inference_mode():
        out = model(input_ids=ids, attention_mask=(ids > 0).long(), decoder_input_ids=shifted)
    return out.logits.float().numpy()


def torch_logits_alone(*args) -> np.ndarray:
    """`torch_logits` in a process that does nothing else.

    It hides what transformers would import for losses and images that no T5 has: 26 MB.
    """
    sys.modules |= {"scipy": None, "PIL": None}
    return torch_logits(*args)
