"""Classification by one decoder step, which chooses the best class token.

  from t5x import classifier
  models.EncoderDecoderModel.decode_fn = @classifier.one_token()
  classifier.one_token.ids = @tasks.jobs.classification.ids_of()  # the class tokens

Training, `infer_eval`, `eval` and `infer` then predict with one decoder step, and only ids leave
the device. A prediction is the token of a class, followed by the end of sequence if the length
allows it. The task turns its text into the label of the class.

Shapes: B batch, N decodes a row, T target length, V vocab, C classes.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from common.errors import UserError
from t5x.decoding import DecodingState


def one_token(ids: Callable[[], Sequence[int]]) -> Callable[..., Any]:
    """Return the `decode_fn` that chooses among classes, a function like `decoding.beam_search`.

    `ids` returns the token id of each class. It is called when the ids are first needed, since the
    machine that configures a run may lack its vocabulary. Scores are log-probabilities among the
    classes; with `num_decodes` N the N best classes are returned, worst first. `check` computes the
    ids, so that invalid ones raise an error before anything is decoded.
    """
    class_ids = functools.cache(lambda: np.array(ids(), np.int32))

    def choose(inputs, cache, tokens_to_logits, eos_id, num_decodes=1, cache_offset=0, **_):
        (rows, length), ids_C = inputs.shape, class_ids()
        if num_decodes > len(ids_C):
            raise UserError(
                "EncoderDecoderModel.predict_batch_with_aux.num_decodes",
                num_decodes,
                f"but there are {len(ids_C)} classes",
                "set it to at most as many",
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

    decode_fn: Any = choose
    decode_fn.check = class_ids
    return decode_fn
