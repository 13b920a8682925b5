"""The work that a model's arithmetic needs, whatever a compiler makes of it.

  step = step_flops(config, batch=128, inputs=512, targets=114)
  mfu = step / seconds / (devices * peak_flops)

Counted: products with parameters, attention's two products, logits; backward twice as much as
forward. Not counted: lookups, norms, softmax, what is computed again to save memory.
"""

from typing import Any


def step_flops(config: Any, batch: int, inputs: int, targets: int) -> float:
    """FLOP of one train step of a T5 (fields of `network.T5Config`) on `batch` sequences.

    Attention counts whole rows of keys, masked or not, as published figures do.
    """
    c = config
    width = c.num_heads * c.head_dim
    mlp = c.emb_dim * c.mlp_dim * (len(c.mlp_activations) + 1)
    scores = lambda queries, keys: 2 * queries * keys * width
    encoder = inputs * (4 * c.emb_dim * width + mlp) + scores(inputs, inputs)
    decoder = targets * (6 * c.emb_dim * width + mlp) + inputs * 2 * c.emb_dim * width
    decoder += scores(targets, targets) + scores(targets, inputs)
    logits = targets * c.emb_dim * c.vocab_size
    forward = c.num_encoder_layers * encoder + c.num_decoder_layers * decoder + logits
    return 3.0 * 2.0 * batch * forward
