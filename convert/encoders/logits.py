"""Logits of an encoder by the trainer's network and by transformers, on one batch."""

from pathlib import Path
from typing import Any

import numpy as np

from convert.encoders.sizes import EncoderSizes
from convert.proof.torch_logits import silence_transformers
from convert.proof.verify import rounded
from convert.t5x_params import nested, open_tree


def probe_batch(sizes: EncoderSizes, rows: int = 2, length: int = 200) -> dict[str, np.ndarray]:
    """Return random ids, int32 [B, L]; the end of the second row is padding.

    Rows are longer than three times the reach of the usual window, so that it is cut in blocks.
    """
    random, length = np.random.default_rng(0), min(length, sizes.max_length)
    # Other ids than RoBERTa's padding, by which transformers counts positions.
    ids = random.integers(2, sizes.vocab_size, (rows, length), dtype=np.int32)
    segments = np.ones_like(ids)
    segments[1:, length - length // 3 :] = 0
    return {"encoder_input_tokens": ids, "encoder_segment_ids": segments}


def module_of(sizes: EncoderSizes) -> Any:
    """Return the network of `t5x.examples.encoder`, in float32."""
    from t5x.examples.encoder import network

    if sizes.modern:
        return network.ModernBert(network.ModernBertConfig(**sizes.fields()))
    return network.Bert(network.BertConfig(**sizes.fields()))


def trainer_logits(
    paths: list[str], sizes: EncoderSizes, batch: dict[str, np.ndarray], dtype: str = "float32"
) -> np.ndarray:
    """Return float32 logits [B, L, V] by `t5x.examples.encoder.network`.

    They are those of a checkpoint, or of the mean of several, rounded to `dtype`.
    """
    import jax

    from t5x.checkpointing.layer_stacking import stack_layers

    module = module_of(sizes)
    tree = rounded(open_tree(paths), dtype)
    arrays = {name: np.asarray(array.read(), np.float32) for name, array in tree.items()}
    found = jax.jit(
        lambda params: module.apply({"params": params}, *batch.values(), enable_dropout=False)
    )(stack_layers(nested(arrays)))
    return np.asarray(found[0] if sizes.next_sentence else found)


def torch_logits(folder: Path, batch: dict[str, np.ndarray]) -> np.ndarray:
    """Return float32 logits [B, L, V] of a folder, loaded as users load it."""
    import torch
    from transformers import AutoModelForMaskedLM

    silence_transformers()
    model = AutoModelForMaskedLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    ids, seen = (torch.from_numpy(values).long() for values in batch.values())
    with torch.inference_mode():
        return model(input_ids=ids, attention_mask=seen).logits.float().numpy()


def filled(folder: Path, texts: list[str]) -> list[list[str]]:
    """Return each text with the pieces that the fill-mask pipeline puts into its masks."""
    from transformers import pipeline

    silence_transformers()
    fill: Any = pipeline("fill-mask", str(folder), top_k=1)
    mask, found = fill.tokenizer.mask_token, []
    for text in texts:
        shown, best = text.replace("[MASK]", mask), text.replace("[MASK]", mask)
        if mask not in shown:
            continue
        predicted = fill(shown)
        for each in predicted if isinstance(predicted[0], list) else [predicted]:
            best = best.replace(mask, each[0]["token_str"].strip(), 1)
        found.append([shown, best])
    return found
