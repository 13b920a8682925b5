"""Greedy decoding of which a function says, id by id, what may come next.

  def allowed(row, prefix):                  # prefix: the row's ids so far, a list of int
      return [17, 23, EOS]                   # one of these comes next
  ids = decode(model, params, batch, allowed)            # int32 [B, T], 0 behind the end

Each place is one compiled step with keys and values kept. Only ids pass between host and device:
what is allowed one way, what is chosen the other. So that few shapes are compiled, the number of
allowed ids is rounded up to a power of two.

Shapes: B batch, T target length, C allowed ids a row.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t5x.inference.predictor import Example, Predictor

Allowed = Callable[[int, list[int]], Sequence[int]]


def decode(model: Any, params: Any, batch: Mapping[str, jax.Array], allowed: Allowed) -> np.ndarray:
    """The most probable of the allowed ids, one after the other, for each row.

    Args:
      model: see `models.EncoderDecoderModel`.
      params: parameters of its network.
      batch: `encoder_input_tokens` [B, I]; `decoder_input_tokens` [B, T] gives the length. All of
        it is on this host.
      allowed: called with a row of the batch and its ids so far; gives the ids that may follow, the
        end of sequence among them where the row may end. It is not asked about a row that has
        ended; where nothing is allowed the row ends without an end of sequence.

    Returns:
      Int32 [B, T]; the end of sequence is written, 0 stands behind it.

    Raises:
      ValueError: an allowed id is none of the vocabulary.
    """
    rows, length = batch["decoder_input_tokens"].shape
    eos_id = model.output_vocabulary.eos_id
    steps, cache = _begin(model)(params, batch["encoder_input_tokens"], length)
    vocab_size = steps.weights.head_VD.shape[0]
    found: list[list[int]] = [[] for _ in range(rows)]
    last = np.zeros(rows, np.int32)
    going = list(range(rows))
    for _ in range(length):
        choices = {row: list(allowed(row, list(found[row]))) for row in going}
        going = [row for row in going if choices[row]]
        if not going:
            break
        last, cache = _step(steps, cache, last, _padded(choices, rows, vocab_size))
        last = np.asarray(last)
        for row in going:
            found[row].append(int(last[row]))
        going = [row for row in going if found[row][-1] != eos_id]
    return np.array([ids + [0] * (length - len(ids)) for ids in found], np.int32)


def texts(
    predictor: Predictor,
    params: Any,
    examples: Sequence[Example],
    inputs: Sequence[str],
    constraint: Callable[[Sequence[str]], tuple[Allowed, Callable[[int, list[int]], str]]],
) -> list[str]:
    """What `constraint` makes of the ids decoded for each example, in their order.

    Args:
      predictor: gives the model and its batches.
      params: parameters of its network.
      examples: as for `predictor`.
      inputs: their texts.
      constraint: texts of a batch to (allowed, finish); finish(row, ids) gives the text of ids.
    """
    params, found = predictor.laid_out(params), {}
    for batch, places, _ in predictor.batches(examples):
        rows = [inputs[place] for place in places]
        rows += rows[-1:] * (predictor.batch_size - len(rows))
        allowed, finish = constraint(rows)
        ids = decode(predictor.model, params, batch, allowed)
        for row, place in enumerate(places):
            found[place] = finish(row, [i for i in ids[row].tolist() if i])
    return [found[place] for place in range(len(found))]


@functools.lru_cache(maxsize=4)
def _begin(model: Any) -> Callable:
    """The compiled beginning of a batch: (params, inputs, length) to the steps and a cache."""

    def begin(params, inputs_BI, length):
        steps = model.decoder_steps(params, inputs_BI, length)
        return steps, steps.empty_cache()

    return jax.jit(begin, static_argnums=2)


@functools.partial(jax.jit, donate_argnums=1)
def _step(steps, cache, last_B, allowed_BC):
    """The best allowed id of each row, int32 [B], and the cache; padding is -1."""
    logits_BV, cache = steps(last_B, cache)
    scores_BC = jnp.take_along_axis(logits_BV, jnp.maximum(allowed_BC, 0), axis=1)
    best_B = jnp.argmax(jnp.where(allowed_BC < 0, -jnp.inf, scores_BC), axis=1)
    chosen_B = jnp.take_along_axis(allowed_BC, best_B[:, None], axis=1)[:, 0]
    return jnp.maximum(chosen_B, 0), cache


def _padded(choices: Mapping[int, list[int]], rows: int, vocab_size: int) -> np.ndarray:
    """The choices as int32 [B, C], -1 where a row has no more."""
    most = max(map(len, choices.values()))
    padded = np.full((rows, 1 << (most - 1).bit_length()), -1, np.int32)
    for row, ids in choices.items():
        wrong = [i for i in ids if not 0 <= i < vocab_size]
        if wrong:
            raise ValueError(
                f"The constraint allows id {wrong[0]} in row {row}, and the model knows 0 to "
                f"{vocab_size - 1}; bind it to the model's vocabulary."
            )
        padded[row, : len(ids)] = ids
    return padded
