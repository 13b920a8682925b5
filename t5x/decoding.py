"""Beam search and temperature sampling, from next-token logits to sequences.

    def tokens_to_logits(state):                   # state.cur_token [B*N, 1], state.cache
        return model_step(state.cur_token, state.cache)      # logits [B*N, V], the new cache

    prompt = jnp.zeros((B, T), jnp.int32)
    decodes, scores = beam_search(prompt, cache, tokens_to_logits, eos_id=1, num_decodes=4)
    best = decodes[:, -1]                          # [B, T]: decodes are sorted worst first

Both are one `lax.while_loop` of static shapes that ends as soon as no row can change its result,
so both can be jitted. A sequence has L = T + 1 positions: position 0 holds the start token 0, and
the step at `cur_index` i fills position i + 1. The end-of-sequence id is followed by padding, 0.

A prompt is a row of `inputs` with nonzero ids after position 0. Those ids are kept and are not
scored, and an end-of-sequence id among them ends nothing. Values that all N decodes of a row share
(such as the encoder's output) belong in the closure and not in the cache, which beam search
reorders at every step.

Shapes: B batch, N decodes a row, L sequence positions, V vocab, C candidates a row.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax import lax

from common.errors import UserError
from t5x.array_types import Cache
from t5x.kernels.top_k import argmax, top_k
from t5x.kv_cache import pick, reorder_rows, repeat_rows

# Minus infinity for scores. It is finite so that sums stay numbers, and marks free beams.
NEG_INF = -1.0e7
# Below this the best id is taken instead, since dividing by the temperature is not safe.
MIN_TEMPERATURE = 1e-4


@flax.struct.dataclass
class DecodingState:
    """The argument of `tokens_to_logits`; the decodes of one row are adjacent."""

    cur_index: jax.Array  # position of `cur_token`; int32, [] in beam search, [B*N] in sampling
    sequences: jax.Array  # [B*N, L or T] int32, up to `cur_token`, then prompt or padding
    cur_token: jax.Array  # [B*N, 1] int32
    cache: Cache


@flax.struct.dataclass
class SamplingLoopState:
    """The argument of `temperature_sample`'s callbacks, which change it by `state.replace(...)`."""

    step: jax.Array  # [] int32, steps made
    cur_index: jax.Array  # [B*N] int32, position of `cur_token`
    sequences: jax.Array  # [B*N, L + 1] int32: prompt, decoded ids, padding, one place unused
    cache: Cache
    cur_token: jax.Array  # [B*N, 1] int32, the id to feed next
    ended: jax.Array  # [B*N, 1] bool
    rng: jax.Array  # randomness for the remaining steps
    log_prob: jax.Array  # [B*N] float32, sum over the decoded ids


@flax.struct.dataclass
class _Beams:
    """The state of a beam search; beams are sorted worst first, free ones score NEG_INF."""

    step: jax.Array  # [] int32, also the position of the current token
    live_seq: jax.Array  # [B, N, L] int32
    live_log_prob: jax.Array  # [B, N] float32
    done_seq: jax.Array  # [B, N, L] int32
    done_score: jax.Array  # [B, N] float32
    cache: Cache


TokensToLogits = Callable[[DecodingState], tuple[jax.Array, Cache]]
DECODE_ARGUMENTS = ("inputs", "cache", "tokens_to_logits", "eos_id", "num_decodes")
# The type of `EncoderDecoderModel.decode_fn`. Called with the keywords above, and others such as
# `decode_rng`, it returns decodes [B, N, T] and scores [B, N], worst first. An optional attribute
# `check`, a function without arguments, raises ValueError if the settings cannot work.
DecodeFn = Callable[..., Any]


def check_decode_fn(decode_fn: DecodeFn) -> None:
    """Raise UserError if `decode_fn` does not accept the keywords `DECODE_ARGUMENTS`."""
    try:
        inspect.signature(decode_fn).bind(**dict.fromkeys(DECODE_ARGUMENTS))
    except (TypeError, ValueError) as error:
        names = ", ".join(DECODE_ARGUMENTS)
        raise UserError(
            "models.EncoderDecoderModel.decode_fn",
            decode_fn,
            f"which cannot be called with the keyword arguments {names}: {error}",
            "see t5x.decoding.DecodeFn",
        ) from None


def brevity_penalty(alpha: float, length: jax.Array | int) -> jax.Array:
    """Return ((5 + length) / 6) ** alpha, the divisor of log-probabilities (Wu et al. 2016, 7)."""
    return ((5.0 + length) / 6.0) ** alpha


def beam_search(
    inputs: jax.Array,
    cache: Cache,
    tokens_to_logits: TokensToLogits,
    eos_id: int,
    num_decodes: int = 4,
    alpha: float = 0.6,
    max_decode_len: int | None = None,
    max_decode_step: int = -1,
    min_log_prob: float = NEG_INF,
    decode_rng: jax.Array | None = None,
    cache_offset: int = 0,
) -> tuple[jax.Array, jax.Array]:
    """Find the `num_decodes` most probable sequences of every row.

    Args:
        inputs: [B, T] int32, prompts or zeros; position 0 is ignored.
        cache: pytree of the model, for B rows.
        tokens_to_logits: one step of the model for B*N rows.
        eos_id: id that ends a sequence.
        num_decodes: beams, and sequences returned, per row.
        alpha: exponent of the brevity penalty; 0 compares plain log-probabilities.
        max_decode_len: length to decode to instead of T; the cache must be as long.
        max_decode_step: steps after which the search ends, the prompt included; no limit below 1.
        min_log_prob: the search ends once no live beam has a log-probability of this.
        decode_rng: ignored; beam search is deterministic.
        cache_offset: batch axis of the cache; 1 where layers come first.

    Returns:
        Sequences [B, N, T] int32 and scores [B, N] float32, worst first. A score is the sum of
        log-probabilities over the brevity penalty. A row in which fewer than N sequences ended
        starts with empty ones of score -1e7; one in which none ended returns its live beams with
        plain sums of log-probabilities.
    """
    del decode_rng
    rows, length = inputs.shape[0], max_decode_len or inputs.shape[1]
    last_step = min(length, max_decode_step) if max_decode_step > 0 else length
    prompt = inputs[:, 1 : length + 1].astype(jnp.int32)
    prompt = jnp.pad(prompt, ((0, 0), (1, length - prompt.shape[1])))

    def is_unfinished(beams: _Beams) -> jax.Array:
        best = beams.live_log_prob[:, -1]
        # Log-probabilities only fall, so that no live beam can exceed this score. A negative alpha
        # has its greatest penalty at the next step.
        lengths = jnp.stack([beams.step + 1, length + 1])
        highest = best / brevity_penalty(alpha, lengths).max()
        alive = (best > NEG_INF / 2) & (highest >= beams.done_score[:, 0])
        likely = (beams.step == 0) | jnp.any(best >= min_log_prob)
        return (beams.step < last_step) & jnp.any(alive) & likely

    def step(beams: _Beams) -> _Beams:
        flat_seq = beams.live_seq.reshape(rows * num_decodes, length + 1)
        cur_token = lax.dynamic_slice_in_dim(flat_seq, beams.step, 1, axis=1)
        state = DecodingState(beams.step, flat_seq, cur_token, beams.cache)
        logits, cache = tokens_to_logits(state)
        forced = lax.dynamic_index_in_dim(prompt, beams.step + 1, 1, keepdims=False)
        return _next_beams(beams, logits, cache, forced, eos_id, alpha, cache_offset)

    beams = _first_beams(rows, num_decodes, length + 1, cache, cache_offset)
    beams = lax.while_loop(is_unfinished, step, beams)
    any_done = beams.done_score[:, -1:] > NEG_INF
    sequences = jnp.where(any_done[..., None], beams.done_seq, beams.live_seq)[..., 1:]
    return sequences, jnp.where(any_done, beams.done_score, beams.live_log_prob)


def _first_beams(rows, beams, positions, cache, cache_offset) -> _Beams:
    empty = jnp.zeros((rows, beams, positions), jnp.int32)
    free = jnp.full((rows, beams), NEG_INF, jnp.float32)
    return _Beams(
        step=jnp.int32(0),
        live_seq=empty,
        live_log_prob=free.at[:, -1].set(0.0),  # one beam: more would hold the same sequence
        done_seq=empty,
        done_score=free,
        cache=repeat_rows(cache, rows, beams, cache_offset),
    )


def _next_beams(beams, logits, cache, forced_B, eos_id, alpha, cache_offset) -> _Beams:
    """Sort the best 2N continuations of each row into ended and live ones."""
    num_beams = beams.live_seq.shape[1]
    log_prob_BC, parent_BC, token_BC = _candidates(beams.live_log_prob, logits)

    # Inside the prompt there is only one sequence: the first candidate takes it, unscored.
    in_prompt_B1 = forced_B[:, None] != 0
    first_C = jnp.where(jnp.arange(log_prob_BC.shape[1]) == 0, 0.0, NEG_INF)
    log_prob_BC = jnp.where(in_prompt_B1, first_C, log_prob_BC)
    token_BC = jnp.where(in_prompt_B1, forced_B[:, None], token_BC)
    ended_BC = (token_BC == eos_id) & ~in_prompt_B1 & (log_prob_BC > NEG_INF / 2)

    length = beams.step + 1
    seq_BCL = pick(beams.live_seq, parent_BC)
    seq_BCL = lax.dynamic_update_slice_in_dim(seq_BCL, token_BC[..., None], length, axis=2)

    # A beam has at most one candidate that ends it, so of 2N candidates at least N stay live.
    live_log_prob, live_BN = _best(jnp.where(ended_BC, NEG_INF, log_prob_BC), num_beams)
    score_BC = jnp.where(ended_BC, log_prob_BC / brevity_penalty(alpha, length), NEG_INF)
    scores = jnp.concatenate([beams.done_score, score_BC], axis=1)
    done_score, done_BN = _best(scores, num_beams)
    return _Beams(
        step=length,
        live_seq=pick(seq_BCL, live_BN),
        live_log_prob=live_log_prob,
        done_seq=pick(jnp.concatenate([beams.done_seq, seq_BCL], axis=1), done_BN),
        done_score=done_score,
        cache=reorder_rows(cache, pick(parent_BC, live_BN), cache_offset),
    )


def _best(scores: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Return the best scores of each row and where they are, worst first."""
    best, where = lax.top_k(scores, count)
    return best[:, ::-1], where[:, ::-1]


def _candidates(live_log_prob_BN, logits):
    """Return log-probability, beam and id [B, 2N] of the best continuations, best first."""
    rows, beams = live_log_prob_BN.shape
    logits_BNV = logits.astype(jnp.float32).reshape(rows, beams, -1)
    # Within each beam first, so that normalized [B, N, V] scores are never written to memory.
    width = min(2 * beams, logits_BNV.shape[-1])
    best_BNW, token_BNW = top_k(logits_BNV, width)
    # In the order of `jax.nn.log_softmax`, so that beams tie where upstream's do.
    most_BN1 = best_BNW[..., :1]
    total_BN1 = jnp.exp(logits_BNV - most_BN1).sum(-1, keepdims=True)
    log_prob_BNW = best_BNW - most_BN1 - jnp.log(total_BN1) + live_log_prob_BN[..., None]
    log_prob_BC, which_BC = lax.top_k(log_prob_BNW.reshape(rows, -1), 2 * beams)
    token_BC = jnp.take_along_axis(token_BNW.reshape(rows, -1), which_BC, axis=1)
    return log_prob_BC, which_BC // width, token_BC


def temperature_sample(
    inputs: jax.Array,
    cache: Cache,
    tokens_to_logits: TokensToLogits,
    eos_id: int,
    decode_rng: jax.Array | None = None,
    num_decodes: int = 1,
    temperature: float | jax.Array = 1.0,
    topk: int = 1,
    topp: float | jax.Array = 0.0,
    cache_offset: int = 0,
    initial_index: jax.Array | None = None,
    max_decode_steps: int | jax.Array | None = None,
    max_decode_steps_hard_limit: int | None = None,
    rescale_log_probs: bool = True,
    state_callback_fn: Callable[[SamplingLoopState], SamplingLoopState] | None = None,
    logit_callback_fn: Callable[[jax.Array, SamplingLoopState], jax.Array] | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Sample `num_decodes` sequences for every row; for other arguments see `beam_search`.

    Args:
        inputs: [B, T] int32, prompts or zeros; position 0 is ignored without `initial_index`.
        decode_rng: key to sample with; the default is the key of seed 0.
        num_decodes: sequences per row.
        temperature: divisor of the logits, a number or [B]; 0 takes the best id.
        topk: sample from the `topk` best ids only; 0 for all ids. The default 1 is greedy.
        topp: sample from the smallest set of ids whose probability reaches `topp`; 0 for all.
            Only one of `topk` and `topp` may be set.
        initial_index: [B] int32, positions of the ids to start from, for a cache that is filled
            up to there and keeps one index per row.
        max_decode_steps: maximum number of ids to decode after the prompt; 1 to T, or bounded by
        max_decode_steps_hard_limit: if above 0.
        rescale_log_probs: score by the distribution sampled from, as shaped by `temperature`,
            `topk` and `topp` (greedy ids then score 0); False scores by the model's own.
        state_callback_fn: takes the state before each step and at the end, returns a state; an
            end-of-sequence id that it adds to `sequences` ends the sequence.
        logit_callback_fn: takes logits [B*N, V] and the state, returns the logits to sample from;
            ids set to -1e7 there are never sampled.

    Returns:
        Sequences [B, N, T] int32 and their log-probabilities [B, N] float32, worst first.
    """
    if topk and _may_be_set(topp) and not isinstance(topp, jax.core.Tracer):
        raise UserError(
            "topk",
            topk,
            f"and topp is {topp}, but only one can restrict the distribution",
            "set temperature_sample.topk (1 by default) or temperature_sample.topp to 0",
        )
    on_state = state_callback_fn or (lambda state: state)
    on_logits = logit_callback_fn or (lambda logits, state: logits)
    rows, length = inputs.shape
    repeat = lambda per_row: jnp.repeat(per_row, num_decodes, axis=0)
    last_position = repeat(_last_position(inputs, max_decode_steps, max_decode_steps_hard_limit))
    if jnp.ndim(temperature):
        temperature = repeat(temperature)[:, None]

    def is_unfinished(state: SamplingLoopState) -> jax.Array:
        return ~state.ended.all()

    def step(state: SamplingLoopState) -> SamplingLoopState:
        state = on_state(state)
        logits, new_cache = tokens_to_logits(
            DecodingState(state.cur_index, state.sequences[:, :-2], state.cur_token, state.cache)
        )
        step_rng, rng = jax.random.split(state.rng)
        logits = on_logits(logits, state)
        sampled = _sample(step_rng, logits, temperature, topk, topp, rescale_log_probs)
        state = _next_state(state, *sampled, last_position, given_ends, eos_id)
        return dataclasses.replace(state, cache=new_cache, rng=rng)

    rng = jax.random.key(0) if decode_rng is None else decode_rng
    cache = repeat_rows(cache, rows, num_decodes, cache_offset, initial_index is not None)
    index = 0 if initial_index is None else repeat(initial_index)
    state = _first_state(repeat(inputs), cache, rng, index)
    given_ends = (state.sequences == eos_id).sum(-1)
    state = on_state(lax.while_loop(is_unfinished, step, state))
    sequences = state.sequences[:, 1:-1].reshape(rows, num_decodes, length)
    log_prob = state.log_prob.reshape(rows, num_decodes)
    order = jnp.argsort(log_prob, axis=1)
    return pick(sequences, order), pick(log_prob, order)


def _first_state(inputs, cache, rng, index) -> SamplingLoopState:
    rows = inputs.shape[0]
    cur_index = jnp.broadcast_to(jnp.int32(index), (rows,))
    sequences = jnp.pad(inputs.astype(jnp.int32), ((0, 0), (0, 2)))
    if isinstance(index, int):
        sequences = sequences.at[:, 0].set(0)
    return SamplingLoopState(
        step=jnp.int32(0),
        cur_index=cur_index,
        sequences=sequences,
        cache=cache,
        cur_token=jnp.take_along_axis(sequences, cur_index[:, None], axis=1),
        ended=jnp.zeros((rows, 1), jnp.bool_),
        rng=rng,
        log_prob=jnp.zeros((rows,), jnp.float32),
    )


def _next_state(state, token, log_prob, last_position, given_ends, eos_id) -> SamplingLoopState:
    """Write the ids [B*N] where the prompt has none and the sequence has not ended."""
    positions = state.sequences.shape[1]
    position = jnp.minimum(state.cur_index, last_position) + 1
    prompt = jnp.take_along_axis(state.sequences, position[:, None], axis=1)[:, 0]
    ended = state.ended[:, 0]
    decoded = (prompt == 0) & ~ended
    token = jnp.where(ended, 0, jnp.where(decoded, token, prompt))
    is_place = position[:, None] == jnp.arange(positions)
    sequences = jnp.where(is_place, token[:, None], state.sequences)
    has_end = (sequences == eos_id).sum(-1) > given_ends
    return state.replace(
        step=state.step + 1,
        cur_index=position,
        sequences=sequences,
        cur_token=token[:, None],
        ended=(ended | has_end | (position >= last_position))[:, None],
        log_prob=state.log_prob + jnp.where(decoded, log_prob, 0.0),
    )


def _sample(rng, logits, temperature, topk, topp, rescale_log_probs) -> tuple[jax.Array, jax.Array]:
    """Return ids [B*N] int32 and their log-probabilities [B*N], from logits [B*N, V]."""
    logits = logits.astype(jnp.float32)
    best = argmax(logits)
    if topk == 1:  # greedy: no random number per id of the vocabulary
        zeros = jnp.zeros(best.shape, jnp.float32)
        return best, zeros if rescale_log_probs else _log_prob(logits, best)
    greedy = jnp.broadcast_to(jnp.asarray(temperature) <= MIN_TEMPERATURE, (best.size, 1))[:, 0]
    shaped = logits / jnp.maximum(temperature, MIN_TEMPERATURE)
    if topk:
        least = top_k(shaped, min(topk, shaped.shape[-1]))[0][:, -1:]
        shaped = jnp.where(shaped >= least, shaped, NEG_INF)
    if _may_be_set(topp):
        shaped = jnp.where(shaped >= _nucleus_threshold(shaped, topp), shaped, NEG_INF)
    sampled = jax.random.categorical(rng, shaped).astype(jnp.int32)
    token = jnp.where(greedy, best, sampled)
    if rescale_log_probs:
        return token, jnp.where(greedy, 0.0, _log_prob(shaped, sampled))
    return token, _log_prob(logits, token)


def _may_be_set(topp: float | jax.Array) -> bool:
    return isinstance(topp, jax.core.Tracer) or bool(topp)


def _log_prob(logits: jax.Array, token: jax.Array) -> jax.Array:
    """Return log-probabilities [rows] of ids [rows] by logits [rows, V]."""
    chosen = jnp.take_along_axis(logits, token[:, None], axis=-1)[:, 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


def _nucleus_threshold(logits: jax.Array, topp: float | jax.Array) -> jax.Array:
    """Return the least logit [rows, 1] of the smallest set of ids of `topp` (Holtzman 2020)."""
    falling = -jnp.sort(-logits, axis=-1)
    probs = jax.nn.softmax(falling)
    is_inside = jnp.cumsum(probs, axis=-1) - probs < topp
    least = jnp.min(jnp.where(is_inside, falling, jnp.inf), axis=-1, keepdims=True)
    return jnp.where(topp > 0, least, -jnp.inf)


def _last_position(inputs, max_steps, hard_limit) -> jax.Array:
    """Return the last position to fill, [B]."""
    rows, length = inputs.shape
    if max_steps is None:
        return jnp.full((rows,), length)
    if (hard_limit or 0) > 0:
        smaller = min if isinstance(max_steps, int) else jnp.minimum
        max_steps = smaller(max_steps, hard_limit)
    if isinstance(max_steps, int) and not 1 <= max_steps <= length:
        raise UserError(
            "max_decode_steps",
            max_steps,
            f"but must be between 1 and the target length {length}",
            "set temperature_sample.max_decode_steps, or the task's targets length",
        )
    return jnp.minimum(length, jnp.sum(inputs != 0, axis=1) + max_steps)
