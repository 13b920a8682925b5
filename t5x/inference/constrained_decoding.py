"""Greedy decoding restricted, at each step, to ids that a callback returns.

  def allowed(row, prefix):                  # prefix: the row's ids so far, a list of int
      return [17, 23, EOS]                   # one of these comes next
  ids = decode(model, params, batch, allowed)            # int32 [B, T], 0 after the end

Each position is one compiled step with cached keys and values. Only ids pass between host and
device. The number of allowed ids is rounded up to a power of two, so that few shapes are compiled.

Shapes: B batch, T target length, C allowed ids per row.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t5x.array_types import Batch, Params
from t5x.inference.predictor import Example, Predictor

Allowed = Callable[[int, list[int]], Sequence[int]]


def decode(model: Any, params: Params, batch: Batch, allowed: Allowed) -> np.ndarray:
    """Decode the most probable allowed id at each position; return int32 [B, T], padded with 0.

    `batch` has `encoder_input_tokens` [B, I], and `decoder_input_tokens` [B, T] for the length; all
    of it is on this host. `allowed` takes a row number and the row's ids so far, and returns the
    ids that may follow, the end of sequence among them where the row may end. It is not called for
    a row that has ended; a row for which it returns nothing ends without an end of sequence. Raise
    ValueError for an allowed id that is not in the vocabulary.
    """
    rows, length = batch["decoder_input_tokens"].shape
    eos_id = model.output_vocabulary.eos_id
    decoder, cache = _start(model)(params, batch["encoder_input_tokens"], length)
    vocab_size = decoder.module.config.vocab_size
    found: list[list[int]] = [[] for _ in range(rows)]
    last = np.zeros(rows, np.int32)
    running = list(range(rows))
    for _ in range(length):
        choices = {row: list(allowed(row, list(found[row]))) for row in running}
        running = [row for row in running if choices[row]]
        if not running:
            break
        last, cache = _step(decoder, cache, last, _padded(choices, rows, vocab_size))
        last = np.asarray(last)
        for row in running:
            found[row].append(int(last[row]))
        running = [row for row in running if found[row][-1] != eos_id]
    return np.array([ids + [0] * (length - len(ids)) for ids in found], np.int32)


def decode_texts(
    predictor: Predictor,
    params: Params,
    examples: Sequence[Example],
    inputs: Sequence[str],
    constraint: Callable[[Sequence[str]], tuple[Allowed, Callable[[int, list[int]], str]]],
) -> list[str]:
    """Return the text of each example, in order; `inputs` are the texts of the examples.

    `constraint` takes the texts of a batch and returns (allowed, finish); finish(row, ids) returns
    the text of decoded ids.
    """
    params, found = predictor.decoding_params(params), {}
    for batch, indices, _ in predictor.batches(examples):
        texts = [inputs[index] for index in indices]
        texts += texts[-1:] * (predictor.batch_size - len(texts))
        allowed, finish = constraint(texts)
        ids = decode(predictor.model, params, batch, allowed)
        for row, index in enumerate(indices):
            found[index] = finish(row, [i for i in ids[row].tolist() if i])
    return [found[index] for index in range(len(found))]


@functools.lru_cache(maxsize=4)
def _start(model: Any) -> Callable:
    """Return the compiled start of a batch: (params, inputs, length) to the decoder and a cache."""

    def start(params, inputs_BI, length):
        decoder = model.incremental_decoder(params, inputs_BI, length)
        return decoder, decoder.empty_cache()

    return jax.jit(start, static_argnums=2)


@functools.partial(jax.jit, donate_argnums=1)
def _step(decoder, cache, last_B, allowed_BC):
    """Return the best allowed id of each row, int32 [B], and the cache; padding is -1."""
    logits_BV, cache = decoder(last_B, cache)
    scores_BC = jnp.take_along_axis(logits_BV, jnp.maximum(allowed_BC, 0), axis=1)
    best_B = jnp.argmax(jnp.where(allowed_BC < 0, -jnp.inf, scores_BC), axis=1)
    chosen_B = jnp.take_along_axis(allowed_BC, best_B[:, None], axis=1)[:, 0]
    return jnp.maximum(chosen_B, 0), cache


def _padded(choices: Mapping[int, list[int]], rows: int, vocab_size: int) -> np.ndarray:
    """Return the choices as int32 [B, C], padded with -1."""
    most = max(map(len, choices.values()))
    padded = np.full((rows, 1 << (most - 1).bit_length()), -1, np.int32)
    for row, ids in choices.items():
        unknown = [i for i in ids if not 0 <= i < vocab_size]
        if unknown:
            raise ValueError(
                f"The constraint allows id {unknown[0]} in row {row}, but the model's ids are 0 to "
                f"{vocab_size - 1}; bind the constraint to the model's vocabulary."
            )
        padded[row, : len(ids)] = ids
    return padded
