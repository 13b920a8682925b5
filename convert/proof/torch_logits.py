"""The logits of a folder by transformers, loaded as users load it, and its tokenizer's ids."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from convert import tokenizer, weight_map
from convert.sizes import EXAMPLE_GENERATION, Sizes


def silence_transformers() -> None:
    """Keep transformers' warnings and bars off the terminal.

    It warns of heads that, rightly, are not tied or not needed.
    """
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def load_torch(folder: Path):
    """Return the converted model as transformers loads it, in float32.

    transformers 5 treats every umT5 as tied, and so scales its logits by emb_dim**-0.5, whatever
    its config.json says. It helps to set the field after loading; at loading it would leave the
    embeddings at random.
    """
    import torch
    from transformers import AutoModelForSeq2SeqLM

    silence_transformers()
    config = json.loads((folder / "config.json").read_text())
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    if config["model_type"] == "umt5":
        model.config.tie_word_embeddings = config["tie_word_embeddings"]
    return model.eval()


class TorchOutputs(NamedTuple):
    """Logits, float32 [B, T, V], and what the model generates for some texts."""

    logits: np.ndarray
    texts: list[str]


def torch_outputs(
    folder: Path,
    sizes: Sizes,
    batch: dict[str, np.ndarray],
    vocabulary: tokenizer.TrainedVocabulary | None = None,
    texts: Sequence[str] = (),
) -> TorchOutputs:
    """Return the float32 logits of a folder by PyTorch, and its output for `texts`.

    Raise ValueError for other tensors than the table's, or other ids than the `vocabulary`'s.
    """
    import torch

    if vocabulary:
        tokenizer.assert_folder_has_same_ids(vocabulary, folder)
    model = load_torch(folder)
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
    tokens: Any = AutoTokenizer.from_pretrained(folder)
    inputs = tokens(list(texts), return_tensors="pt", padding=True)
    ids = model.generate(**inputs, **EXAMPLE_GENERATION)
    if int(ids.max()) >= len(tokens):  # a row of the embedding that is no piece
        return []
    return [text.replace("<pad>", "").strip() for text in tokens.batch_decode(ids)]
