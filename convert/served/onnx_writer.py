"""ONNX files of a converted folder, by PyTorch's exporter, and their proof by onnxruntime.

`onnx/encoder_model.onnx` and `onnx/decoder_model.onnx` have optimum's names of files, inputs and
outputs. The decoder has no cache, so each step computes all steps before it again. optimum itself
exports only with transformers below 4.58.
"""

import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from convert.model_config import Sizes
from convert.proof import verify
from convert.proof.torch_logits import load_torch

ENCODER, DECODER = "encoder_model.onnx", "decoder_model.onnx"


def write(folder: Path, sizes: Sizes) -> dict[str, float]:
    """Write `onnx/` into a converted folder and return how far its logits are from PyTorch's.

    Raise ValueError if that is more than the conversion itself may differ.
    """
    import torch

    model = load_torch(folder)
    model.set_attn_implementation("eager")  # strides of the fused one cannot be exported
    batch = verify.probe_batch(sizes)
    ids, shifted = (
        torch.from_numpy(batch[name]).long()
        for name in ("encoder_input_tokens", "decoder_input_tokens")
    )
    mask = (ids > 0).long()
    encoder, decoder = halves(model)
    with torch.no_grad():
        hidden = encoder(ids, mask)
        theirs = decoder(shifted, mask, hidden).numpy()
    out = folder / "onnx"
    out.mkdir()
    dims = {name: torch.export.Dim(name) for name in ("batch", "length", "target")}
    rows = {0: dims["batch"], 1: dims["length"]}
    _export(
        encoder,
        out / ENCODER,
        {"input_ids": (ids, rows), "attention_mask": (mask, rows)},
        "last_hidden_state",
    )
    _export(
        decoder,
        out / DECODER,
        {
            "input_ids": (shifted, {0: dims["batch"], 1: dims["target"]}),
            "encoder_attention_mask": (mask, rows),
            "encoder_hidden_states": (hidden, rows),
        },
        "logits",
    )
    ours = onnx_logits(out, batch["encoder_input_tokens"], batch["decoder_input_tokens"])
    return {"largest_difference": verify.compare(theirs, ours, "onnxruntime", "PyTorch")}


def halves(model) -> tuple[Any, Any]:
    """Return encoder and decoder of a model as modules of tensors alone."""
    import torch

    class EncoderHalf(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model.get_encoder()

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]

    class DecoderHalf(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, encoder_attention_mask, encoder_hidden_states):
            return self.model(
                encoder_outputs=(encoder_hidden_states,),
                attention_mask=encoder_attention_mask,
                decoder_input_ids=input_ids,
                use_cache=False,
            ).logits

    return EncoderHalf().eval(), DecoderHalf().eval()


def _export(module, path: Path, inputs: dict[str, tuple[Any, dict]], output: str) -> None:
    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # of torchvision, which is not used
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(tensor for tensor, _ in inputs.values()),
            str(path),
            input_names=list(inputs),
            output_names=[output],
            dynamic_shapes={name: dims for name, (_, dims) in inputs.items()},
            dynamo=True,
            external_data=True,  # a file of protobuf holds 2 GB
            verbose=False,
        )


def onnx_logits(folder: Path, ids: np.ndarray, shifted: np.ndarray) -> np.ndarray:
    """Return float32 logits [B, T, V] of inputs [B, I] and decoder inputs [B, T] by onnxruntime."""
    import onnxruntime

    open_session = lambda name: onnxruntime.InferenceSession(
        str(folder / name), providers=["CPUExecutionProvider"]
    )
    mask = (ids > 0).astype(np.int64)
    inputs = {"input_ids": ids.astype(np.int64), "attention_mask": mask}
    (hidden,) = open_session(ENCODER).run(None, inputs)
    (logits,) = open_session(DECODER).run(
        None,
        {
            "input_ids": shifted.astype(np.int64),
            "encoder_attention_mask": mask,
            "encoder_hidden_states": hidden,
        },
    )
    return logits
