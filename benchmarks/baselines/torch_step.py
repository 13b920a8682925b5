"""The compiled train step of transformers' T5 in PyTorch, to compare with ours."""

import os
import time

from benchmarks.synthetic_step import SyntheticRequest
from benchmarks.timing import Timed, synthetic_batch
from convert.sizes import T5Sizes

# Both libraries hold the same device: JAX takes what it needs, not three quarters at once.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def torch_step(request: SyntheticRequest) -> Timed:
    """Forward, backward and Adafactor by `torch.compile`, on the GPU if PyTorch has one.

    Parameters are float32, products in the recipe's dtype, the loss has the same terms. Each row is
    one example, since transformers' T5 takes no packed ones: so its attention has no mask to add.
    Only the network is compiled; the optimizer updates all arrays at once (`foreach`). The time to
    compile has the first step in it. Memory is what a step takes beside all that stays, as PyTorch
    allocates it.
    """
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, str(request.network.get("dtype", "float32")))
    sizes = T5Sizes.from_fields(request.network)
    config = AutoConfig.for_model(**sizes.config())
    torch.manual_seed(0)
    if device == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32, as XLA does by default
    model = AutoModelForSeq2SeqLM.from_config(
        config, dtype=torch.float32, attn_implementation="sdpa"
    )
    model = model.to(device).train()
    optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-2, foreach=True)
    batch = synthetic_batch(request)
    put = lambda name: torch.from_numpy(batch[name]).long().to(device)
    names = ("encoder_input_tokens", "decoder_input_tokens", "decoder_target_tokens")
    inputs, previous, targets = map(put, names)

    @torch.compile
    def loss_of() -> torch.Tensor:
        with torch.autocast(device, dtype, enabled=dtype != torch.float32):
            logits = model(input_ids=inputs, decoder_input_ids=previous, use_cache=False).logits
        logits = logits.float()
        normalizer = logits.logsumexp(-1)
        chosen = logits.gather(-1, targets[..., None])[..., 0]
        return (normalizer - chosen + request.z_loss * normalizer**2).sum()

    def advance() -> torch.Tensor:
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
