"""The compiled train step of transformers' networks in PyTorch, to compare with ours."""

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.synthetic_step import SyntheticRequest, batch_shapes
from benchmarks.timing import Timed, synthetic_batch
from convert.sizes import Sizes, T5Sizes

# Both libraries hold the same device: JAX takes what it needs, not three quarters at once.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def torch_step(request: SyntheticRequest) -> Timed:
    """The step of `request`, as `timed_torch` has it."""
    sizes = T5Sizes.from_fields(request.network)
    batch = synthetic_batch(batch_shapes(request), request.network["vocab_size"])
    dtype = str(request.network.get("dtype", "float32"))
    return timed_torch(sizes, batch, dtype, request.z_loss)


def timed_torch(
    sizes: Sizes,
    batch: Mapping[str, Any],
    dtype: str = "bfloat16",
    z_loss: float = 1e-4,
    by_cudnn: bool = False,
) -> Timed:
    """Forward, backward and update by `torch.compile`, on the GPU if PyTorch has one.

    Parameters are float32, products in `dtype`, the loss has the same terms. Each row is one
    example, since transformers' T5 takes no packed ones: so its attention has no mask to add. An
    encoder computes the logits of all places, the loss of those with a weight. Only the network is
    compiled; the optimizer, Adafactor or an encoder's AdamW, updates all arrays at once
    (`foreach`). SDPA takes the kernels of its own choice, or cuDNN's first if `by_cudnn`. The time
    to compile has the first step in it. Memory is what a step takes beside all that stays, as
    PyTorch allocates it.
    """
    import torch
    import transformers
    from torch.nn.attention import SDPBackend, sdpa_kernel

    device = "cuda" if torch.cuda.is_available() else "cpu"
    width = getattr(torch, dtype)
    config = transformers.AutoConfig.for_model(**sizes.config())
    torch.manual_seed(0)
    if device == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32, as XLA does by default
    is_encoder = "decoder_input_tokens" not in batch
    auto = transformers.AutoModelForMaskedLM if is_encoder else transformers.AutoModelForSeq2SeqLM
    model = auto.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
    model = model.to(device).train()
    put = lambda name: torch.from_numpy(batch[name]).long().to(device)
    side = "encoder" if is_encoder else "decoder"
    targets, is_counted = put(f"{side}_target_tokens"), put(f"{side}_loss_weights") > 0
    fields: dict[str, Any] = {"input_ids": put("encoder_input_tokens")}
    if is_encoder:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    else:
        fields |= {"decoder_input_ids": put("decoder_input_tokens"), "use_cache": False}
        optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-2, foreach=True)

    @torch.compile
    def loss_of() -> torch.Tensor:
        with torch.autocast(device, width, enabled=width != torch.float32):
            logits = model(**fields).logits
        logits = logits.float()
        normalizer = logits.logsumexp(-1)
        chosen = logits.gather(-1, targets[..., None])[..., 0]
        return ((normalizer - chosen + z_loss * normalizer**2) * is_counted).sum()

    order = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

    def advance() -> torch.Tensor:
        kernels: Any = contextlib.nullcontext()
        if by_cudnn:
            kernels = sdpa_kernel([SDPBackend.CUDNN_ATTENTION, *order], set_priority=True)
        with kernels:
            loss = loss_of()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    started = time.perf_counter()
    float(advance())
    seconds = time.perf_counter() - started
    if device == "cpu":
        return Timed(advance, seconds)
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    float(advance())
    return Timed(advance, seconds, (torch.cuda.max_memory_allocated() - held) / 2**30)
