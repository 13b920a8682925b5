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


def trainer_logits(
    paths: list[str], sizes: EncoderSizes, batch: dict[str, np.ndarray], dtype: str = "float32"
) -> np.ndarray:
    """Return float32 logits [B, L, V] by `t5x.examples.encoder.network`, of texts [B, C] or [B, D].

    They are those of a checkpoint, or of the mean of several, rounded to `dtype`.
    """
    import jax
    import jax.numpy as jnp

    from t5x.checkpointing.layer_stacking import stack_layers
    from t5x.examples.encoder import heads, network

    fields = sizes.fields()
    module: Any
    if sizes.modern:
        module = network.ModernBert(network.ModernBertConfig(**fields))
    else:
        module = network.Bert(network.BertConfig(**fields))
    tree = rounded(open_tree(paths), dtype)
    arrays = {name: np.asarray(array.read(), np.float32) for name, array in tree.items()}

    def compute(params):
        given = {"params": params}, *batch.values()
        if sizes.head == "mlm":
            return module.apply(*given, enable_dropout=False)
        encoded = module.apply(*given, enable_dropout=False, method="encode")
        if sizes.head == "vectors":
            segments = jnp.asarray(batch["encoder_segment_ids"])
            return heads.mean_of_segments(encoded, segments)[:, 0]
        of_words = sizes.head == "words"
        head = heads.LabelHead(module.config, len(sizes.labels), of_words, sizes.pooling)
        found: Any = head.apply({"params": params}, encoded, batch["encoder_segment_ids"])
        return found if of_words else found[:, 0]

    found = jax.jit(compute)(stack_layers(nested(arrays)))
    return np.asarray(found[0] if sizes.next_sentence else found)


def compared(sizes: EncoderSizes, batch: dict[str, np.ndarray]) -> np.ndarray:
    """Return which logits are compared: those of tokens that are no padding, or of all texts."""
    real = batch["encoder_segment_ids"] > 0
    return np.asarray(real.any(1)) if sizes.head in ("text", "vectors") else real


def torch_logits(
    folder: Path, batch: dict[str, np.ndarray], sizes: EncoderSizes | None = None
) -> np.ndarray:
    """Return float32 logits [B, L, V] of a folder, loaded as users load it; of texts [B, C].

    Without a head these are vectors [B, D], the means of tokens.
    """
    import torch
    import transformers

    silence_transformers()
    auto = getattr(transformers, sizes.auto_class if sizes else "AutoModelForMaskedLM")
    model = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids, seen = (torch.from_numpy(values).long() for values in batch.values())
    with torch.inference_mode():
        found = model(input_ids=ids, attention_mask=seen)
        if sizes is None or sizes.head != "vectors":
            return found.logits.float().numpy()
        kept = seen[..., None]
        return ((found.last_hidden_state * kept).sum(1) / kept.sum(1)).float().numpy()


def filled(folder: Path, texts: list[str]) -> list[list[str]]:
    """Return each text with the pieces that the fill-mask pipeline puts into its masks."""
    from transformers import pipeline

    if not texts:
        return []
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


def labelled(folder: Path, texts: list[str], sizes: EncoderSizes) -> list[list[str]]:
    """Return each text with its label, or its words with labels, by the pipeline."""
    from transformers import pipeline

    silence_transformers()
    label: Any = pipeline(sizes.pipeline, str(folder))
    if sizes.head == "text":
        return [[text, label(text)[0]["label"]] for text in texts]
    shown = lambda found: ", ".join(f"{one['word']} {one['entity']}" for one in found)
    return [[text, shown(label(text))] for text in texts]
