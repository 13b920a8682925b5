"""Classification as one token: one step of the decoder, the best of the classes' ids.

  from t5x import classifier
  models.EncoderDecoderModel.decode_fn = @classifier.one_token()
  classifier.one_token.ids = @tasks.classification.ids_of()  # whoever knows the classes' tokens

Training, `infer_eval`, `eval` and `infer` then predict by one step; ids alone leave the device. A
prediction is the class's token and, where the length leaves room, the end of sequence: decoded, it
is the class's name.

Shapes: B batch, N decodes a row, T target length, V vocab, C classes.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t5x.decoding import DecodingState


def one_token(ids: Callable[[], Sequence[int]]) -> Callable[..., Any]:
    """Makes the `decode_fn` that chooses among classes.

    Args:
      ids: gives the id of each class's one token. It is asked when first needed: a run is described
        where its vocabulary is not at hand.

    Returns:
      A function as `decoding.beam_search`. Its scores are log-probabilities among the classes;
      with `num_decodes` N it gives the N best classes, worst first. Its `check` asks for the ids
      before anything is decoded, so that they are refused there, if they are.
    """
    known = functools.cache(lambda: np.array(ids(), np.int32))

    def choose(inputs, cache, tokens_to_logits, eos_id, num_decodes=1, cache_offset=0, **_):
        (rows, length), ids_C = inputs.shape, known()
        if num_decodes > len(ids_C):
            raise ValueError(
                f"EncoderDecoderModel.predict_batch_with_aux.num_decodes is {num_decodes}, but "
                f"there are {len(ids_C)} classes; set it to at most as many."
            )
        start = jnp.zeros((rows, length), jnp.int32)
        logits_BV, _ = tokens_to_logits(DecodingState(jnp.int32(0), start, start[:, :1], cache))
        log_probs_BC = jax.nn.log_softmax(logits_BV[:, ids_C])
        scores_BN, best_BN = jax.lax.top_k(log_probs_BC, num_decodes)
        ids_BNT = jnp.zeros((rows, num_decodes, length), jnp.int32)
        ids_BNT = ids_BNT.at[:, :, 0].set(jnp.asarray(ids_C)[best_BN[:, ::-1]])
        if length > 1:
            ids_BNT = ids_BNT.at[:, :, 1].set(eos_id)
        return ids_BNT, scores_BN[:, ::-1]

    choose.check = known
    return choose
