"""CTranslate2's int8 model of a converted folder, and its proof.

The same model in float32 must decode PyTorch's tokens from the fixed batch, with its logits; int8
must decode them too, except where PyTorch's own choice was nearly a tie, and how far it moves the
logits is reported.
"""

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from convert.model_config import Sizes
from convert.proof import verify
from convert.proof.torch_logits import load_torch

FOLDER = "ctranslate2"
_STEPS = 16
# int8 keeps seven bits of each weight; a token that PyTorch prefers by more than this share of its
# largest logit is not lost by rounding.
_NEAR_TIE = 0.05


def write(folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Write `ctranslate2/` into a converted folder with a tokenizer; return its proof.

    Raise ValueError if float32 differs from PyTorch, or int8 by more than rounding explains.
    """
    batch = verify.probe_batch(sizes)["encoder_input_tokens"]
    tokens, logits = _by_torch(folder, batch)
    with tempfile.TemporaryDirectory() as work:
        exact = Path(work) / "float32"
        _convert(folder, exact, None)
        plain = compare(tokens, logits, *_by_ctranslate2(folder, exact, batch))
    allowed = verify.TOLERANCE * max(1.0, plain["largest_logit"])
    if plain["tokens_equal"] < plain["tokens"] or plain["drift"] > allowed:
        raise ValueError(
            f"CTranslate2's logits differ from PyTorch's by {plain['drift']:.3g}, more than "
            f"{allowed:.3g}, or decode other tokens: leave ctranslate2 out of --formats."
        )
    _convert(folder, folder / FOLDER, "int8")
    found = compare(tokens, logits, *_by_ctranslate2(folder, folder / FOLDER, batch))
    return found | {"largest_difference": plain["drift"]}


def compare(
    tokens: list[list[int]],
    logits: list[np.ndarray],
    found_tokens: list[list[int]],
    found_logits: list[np.ndarray],
) -> dict[str, Any]:
    """Return how many tokens of greedy outputs are equal, and how far the logits [T, V] moved.

    A row counts up to its first other token, since what follows has other inputs. Raise ValueError
    if that token is not nearly a tie in `logits`.
    """
    equal, drift = 0, 0.0
    largest = max(float(np.abs(row).max()) for row in logits)
    for row, wanted, other, moved in zip(tokens, logits, found_tokens, found_logits, strict=True):
        pairs = list(zip(row, other, strict=False))
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
        equal += same
        seen = min(same + 1, len(pairs))
        drift = max(drift, float(np.abs(wanted[:seen] - moved[:seen]).max()))
        if same < len(pairs):
            a, b = pairs[same]
            margin = float(wanted[same, a] - wanted[same, b])
            if margin > _NEAR_TIE * largest:
                raise ValueError(
                    f"CTranslate2 decodes {b} where PyTorch decodes {a}, which is ahead by "
                    f"{margin:.3g} (largest logit {largest:.3g}), so int8 changes this model too "
                    "much: leave ctranslate2 out of --formats."
                )
    count = sum(map(len, tokens))
    return {"tokens": count, "tokens_equal": equal, "drift": drift, "largest_logit": largest}


def _by_torch(folder: Path, batch: np.ndarray) -> tuple[list[list[int]], list[np.ndarray]]:
    """Return the tokens and logits [T, V] that PyTorch decodes from each row, greedily."""
    import torch

    model, found = load_torch(folder), []
    for row in batch:
        ids = torch.from_numpy(row[row > 0]).long()[None]
        out = model.generate(
            ids,
            max_new_tokens=_STEPS,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        logits = np.concatenate([step.float().numpy() for step in out.logits])
        found.append((_to_eos(out.sequences[0, 1:].tolist()), logits))
    return [tokens for tokens, _ in found], [logits for _, logits in found]


def _to_eos(tokens: list[int]) -> list[int]:
    """Return the tokens up to the end of sequence, with it if they are fewer than were asked."""
    ended = tokens[: tokens.index(1)] if 1 in tokens else tokens
    return ended + [1] if len(ended) < _STEPS else ended


def _by_ctranslate2(
    folder: Path, model: Path, batch: np.ndarray
) -> tuple[list[list[int]], list[np.ndarray]]:
    """Return the tokens and logits [T, V] that CTranslate2 decodes from each row, greedily."""
    import ctranslate2
    from transformers import AutoTokenizer

    names: Any = AutoTokenizer.from_pretrained(folder)
    inputs = [names.convert_ids_to_tokens(row[row > 0].tolist()) for row in batch]
    translator = ctranslate2.Translator(str(model), device="cpu")
    results = translator.translate_batch(
        inputs,
        beam_size=1,
        min_decoding_length=0,  # else the end of sequence has no logit at first
        max_decoding_length=_STEPS,
        return_logits_vocab=True,
    )
    ids = [names.convert_tokens_to_ids(result.hypotheses[0]) for result in results]
    tokens = [_to_eos(row) for row in ids]
    return tokens, [np.stack([np.array(s) for s in result.logits[0]]) for result in results]


def _convert(folder: Path, out: Path, quantization: str | None) -> None:
    from ctranslate2.converters import TransformersConverter

    tied = json.loads((folder / "config.json").read_text())["tie_word_embeddings"]

    class Converter(TransformersConverter):
        def load_model(self, *_, **__):
            """Return the model with the field that says whether logits are scaled.

            transformers 5 sets it for every T5, and CTranslate2 would scale them all.
            """
            model = load_torch(folder)
            model.config.tie_word_embeddings = tied
            return model

    with open(os.devnull, "w") as silent, contextlib.redirect_stderr(silent):
        Converter(str(folder)).convert(str(out), quantization=quantization)
