"""Computes a folder's logits and examples with transformers, loaded as users load it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convert import weight_map
from convert.formats.hf_checkpoint_reader import read_json
from convert.sizes import BertSizes, EncoderDecoderSizes, Sizes

MASK, ENCODER_MASK = "<extra_id_0>", "[MASK]"


def generates_by_itself(settings: Mapping[str, Any]) -> bool:
    """Return whether `settings` of generation say how long outputs are, as an evaluation's do."""
    return "max_new_tokens" in settings


def generation(texts: Sequence[str]) -> dict[str, Any]:
    """Return the settings that generate the card's examples: short outputs for gaps, else long."""
    fills_gaps = any(MASK in text for text in texts)
    return {"max_new_tokens": 20 if fills_gaps else 128, "do_sample": False}


def silence_transformers() -> None:
    """Keep transformers' warnings and bars off the terminal.

    It warns of heads that are untied or unused on purpose.
    """
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def load_torch(folder: Path, kind: str = "AutoModelForSeq2SeqLM") -> Any:
    """Return the model of a folder as transformers loads it, in float32.

    transformers 5 scales the inputs of every umT5's head, also where config.json says otherwise, as
    published ones do. It helps to set the field after loading; at loading it would leave the
    embeddings at random.
    """
    import torch
    import transformers

    silence_transformers()
    config = read_json(folder, "config.json")
    model = getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32)
    if config.get("model_type") == "umt5" and not config.get("scale_decoder_outputs"):
        model.config.tie_word_embeddings = config.get("tie_word_embeddings", True)
    return model.eval()


def load_network(folder: Path, sizes: Sizes) -> Any:
    """Return a folder's model; raise UserError if its tensors are not those of the weight map."""
    model = load_torch(folder, _auto_class(sizes))
    _guard(model, sizes)
    return model


def check_names(folder: Path, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Check that the model which transformers makes of config.json has the weight map's tensors.

    Return the shapes of those that it has for images. Weights are neither computed nor allocated.
    Raise UserError if a tensor differs.
    """
    import torch
    import transformers

    silence_transformers()
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = getattr(transformers, _auto_class(sizes)).from_config(config)
    shapes = _guard(model, sizes)
    return {name: shapes[name] for name in shapes if weight_map.IMAGES.fullmatch(name)}


def _auto_class(sizes: Sizes) -> str:
    if isinstance(sizes, EncoderDecoderSizes):
        return "AutoModelForSeq2SeqLM"
    has_pairs = isinstance(sizes, BertSizes) and sizes.next_sentence
    return "AutoModelForPreTraining" if has_pairs else "AutoModelForMaskedLM"


def _guard(model: Any, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    weight_map.guard_targets(sizes, weight_map.present(shapes, sizes), "transformers' model")
    return shapes


def torch_logits(model: Any, sizes: Sizes, batch: dict[str, np.ndarray]) -> np.ndarray:
    """Return the float32 logits of a model and a probe batch, as `t5x_logits.trainer_logits`."""
    import torch

    ids, *arrays = (torch.from_numpy(values).long() for values in batch.values())
    with torch.inference_mode():
        if isinstance(sizes, EncoderDecoderSizes):
            # Published models with a decoder deeper than the encoder fail with a cache.
            inputs = {"decoder_input_ids": arrays[0], "use_cache": False}
            out = model(input_ids=ids, attention_mask=(ids > 0).long(), **inputs)
        else:
            out = model(input_ids=ids, attention_mask=arrays[0])
    if "prediction_logits" not in out:
        return out.logits.float().numpy()
    next_sentence = out.seq_relationship_logits[:, None].expand(*ids.shape, -1)
    return torch.cat([out.prediction_logits, next_sentence], dim=-1).float().numpy()


def examples(folder: Path, sizes: Sizes, texts: Sequence[str]) -> list[list[str]]:
    """Return pairs of a text and the model's output, made by the code that the card shows.

    That code loads the model in the dtype of the folder.
    """
    if not texts:
        return []
    if not isinstance(sizes, EncoderDecoderSizes):
        return _filled(folder, texts)
    return [list(pair) for pair in zip(texts, _generated(folder, texts), strict=False)]


def _generated(folder: Path, texts: Sequence[str]) -> list[str]:
    """Return outputs as the folder generates, or else greedy ones, sentinels included.

    Return none of them if one has an id that the tokenizer lacks, as untrained models may, or if
    the folder generates several for each text.
    """
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokens: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder)
    settled = generates_by_itself(read_json(folder, "generation_config.json"))
    inputs = tokens(list(texts), return_tensors="pt", padding=True, truncation=settled)
    ids = model.generate(**inputs, **({} if settled else generation(texts)))
    if int(ids.max()) >= len(tokens) or len(ids) > len(texts):
        return []
    outputs = tokens.batch_decode(ids, skip_special_tokens=settled)
    return [text.replace("<pad>", "").strip() for text in outputs]


def _filled(folder: Path, texts: Sequence[str]) -> list[list[str]]:
    """Return pairs of a text with masks and the same text with the likeliest pieces filled in."""
    from transformers import pipeline

    fill: Any = pipeline("fill-mask", str(folder), top_k=1)
    mask, pairs = fill.tokenizer.mask_token, []
    for text in texts:
        masked = best = text.replace(ENCODER_MASK, mask)
        if mask not in masked:
            continue
        predicted = fill(masked)
        for guesses in predicted if isinstance(predicted[0], list) else [predicted]:
            best = best.replace(mask, guesses[0]["token_str"].strip(), 1)
        pairs.append([masked, best])
    return pairs
