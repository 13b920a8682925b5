"""The batch on which two networks are compared.

batch = fixed_batch(sizes)
batch["encoder_input_tokens"]                      # int32 [B, I]
"""

import numpy as np

from convert.model_config import Sizes


def fixed_batch(
    sizes: Sizes, batch: int = 2, inputs: int = 24, targets: int = 16
) -> dict[str, np.ndarray]:
    """Ids of a seeded batch, int32 [B, I] and [B, T]; the second row's inputs end in padding."""
    rng = np.random.default_rng(0)
    encoder = rng.integers(2, sizes.vocab_size, (batch, inputs), dtype=np.int32)
    encoder[1:, inputs - inputs // 3 :] = 0
    target = rng.integers(2, sizes.vocab_size, (batch, targets), dtype=np.int32)
    shifted = np.pad(target[:, :-1], ((0, 0), (1, 0)))
    return {
        "encoder_input_tokens": encoder,
        "decoder_input_tokens": shifted,
        "decoder_target_tokens": target,
    }
