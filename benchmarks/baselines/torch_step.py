"""The compiled train step of transformers' T5 in PyTorch, to compare with ours."""

import os
import time

from benchmarks.synthetic_step import SyntheticRequest
from benchmarks.timing import Timed, synthetic_batch
from convert.model_config import Sizes, hugging_face_config, model_type

# Both libraries hold the same device: JAX takes what it needs, not three quarters at once.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def torch_step(request: SyntheticRequest, attention: str = "sdpa") -> Timed:
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
    if attention == "flex_attention":
        _repair_flex_attention()
    sizes = Sizes.from_fields(request.network)
    config = AutoConfig.for_model(**hugging_face_config(sizes, model_type(sizes)))
    torch.manual_seed(0)
    if device == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32, as XLA does by default
    model = AutoModelForSeq2SeqLM.from_config(
        config, dtype=torch.float32, attn_implementation=attention
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


def _repair_flex_attention() -> None:
    """Replace what transformers has for Flex attention, which has two faults for T5.

    In 5.17 and 5.23 it reads T5's bias, which has one example for all, at each example's own index,
    beyond the array's end: an illegal memory access on a GPU, "index out of bounds" on a CPU. And
    PyTorch's gradients are NaN where scores are changed, blocks are masked and a length is not a
    multiple of 128 (https://github.com/pytorch/pytorch/issues/153799): there the scores' function
    masks as well, which costs little, since 114 targets are one block.
    """
    import torch
    from torch.nn.attention.flex_attention import flex_attention
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def attend(module, query, key, value, mask, position_bias, scaling, **_):
        visible = None
        if mask is not None and (query.shape[2] % 128 or key.shape[2] % 128):
            visible, mask = mask.mask_mod, None

        def add_bias(score, example, head, query, key):
            score = score + position_bias[0, head, query, key]
            if visible is None:
                return score
            return torch.where(visible(example, head, query, key), score, -float("inf"))

        out = flex_attention(query, key, value, add_bias, mask, scaling)
        return out.transpose(1, 2).contiguous(), None

    ALL_ATTENTION_FUNCTIONS["flex_attention"] = attend
