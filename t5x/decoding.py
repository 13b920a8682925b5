"""From next-token logits to whole sequences: beam search, and sampling with a temperature.

    def tokens_to_logits(state):                   # state.cur_token [B*N, 1], state.cache
        return model_step(state.cur_token, state.cache)      # logits [B*N, V], the new cache

    prompt = jnp.zeros((B, T), jnp.int32)
    decodes, scores = beam_search(prompt, cache, tokens_to_logits, eos_id=1, num_decodes=4)
    best = decodes[:, -1]                          # [B, T]: decodes stand worst first

Both are one `lax.while_loop` of static shapes that ends as soon as no row can change its answer,
so they can be jitted. A sequence is followed in L = T + 1 places: place 0 holds the start token 0,
and place i + 1 is filled by the step whose `cur_index` is i. After the end-of-sequence id comes
padding, 0.

A prompt is a row of `inputs` with ids that are not 0 after its place 0: those ids are kept, and
what the model says about them is left out of the score; an end-of-sequence id among them ends
nothing. What is the same for all N decodes of a row (the encoder's output, say) belongs in the
closure and not in the cache, which is reordered at every step of a beam search.

B batch, N decodes a row, L sequence places, V vocab, C candidates a row.
"""

from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax import lax

from t5x.generation.kv_cache import Cache, pick, reorder_rows, repeat_rows
from t5x.generation.top_k import argmax, top_k

# Stands for minus infinity in scores: a sum of two is still a number, and a free place among the
# finished beams can be told by it.
NEG_INF = -1.0e7
# Below this, dividing by the temperature is not safe, and the best id is taken instead.
MIN_TEMPERATURE = 1e-4


@flax.struct.dataclass
class DecodingState:
    """What `tokens_to_logits` is given; the decodes of one row stand next to each other.

    Attributes:
        cur_index: place of `cur_token`; int32, [] in beam search and [B*N] in sampling.
        sequences: [B*N, L or T] int32, everything up to `cur_token`, then prompt or padding.
        cur_token: [B*N, 1] int32.
        cache: the model's pytree.
    """

    cur_index: jax.Array
    sequences: jax.Array
    cur_token: jax.Array
    cache: Cache


@flax.struct.dataclass
class SamplingLoopState:
    """What the callbacks of `temperature_sample` are given; `state.replace(...)` changes it.

    Attributes:
        step: [] int32, steps made.
        cur_index: [B*N] int32, place of `cur_token`.
        sequences: [B*N, L] int32, what stands written: prompt, decoded ids, padding.
        cache: the model's pytree.
        cur_token: [B*N, 1] int32, the id to be fed next.
        ended: [B*N, 1] bool.
        rng: the key of the steps to come.
        log_prob: [B*N] float32, sum over the decoded ids.
    """

    step: jax.Array
    cur_index: jax.Array
    sequences: jax.Array
    cache: Cache
    cur_token: jax.Array
    ended: jax.Array
    rng: jax.Array
    log_prob: jax.Array


@flax.struct.dataclass
class _Beams:
    """The state of a beam search; beams stand best first, free places score NEG_INF."""

    cur_index: jax.Array  # [] int32
    live_seq: jax.Array  # [B, N, L] int32
    live_log_prob: jax.Array  # [B, N] float32
    done_seq: jax.Array  # [B, N, L] int32
    done_score: jax.Array  # [B, N] float32
    cache: Cache


@flax.struct.dataclass
class Suspended:
    """A search that has come to a place, and goes on from `state`.

    Attributes:
        decodes: what it would return, were it at its end.
        scores: likewise.
        state: of the search; the rows are axis 0 of its arrays (their decodes side by side).
        unsettled: [B] bool, the rows that can still change.
    """

    decodes: jax.Array
    scores: jax.Array
    state: Any
    unsettled: jax.Array


TokensToLogits = Callable[[DecodingState], tuple[jax.Array, Cache]]


def brevity_penalty(alpha: float, length: jax.Array | int) -> jax.Array:
    """((5 + length) / 6) ** alpha, by which log-probabilities are divided (Wu et al. 2016, 7)."""
    return ((5.0 + length) / 6.0) ** alpha


def beam_search(
    inputs: jax.Array,
    cache: Cache,
    tokens_to_logits: TokensToLogits,
    eos_id: int,
    num_decodes: int = 4,
    alpha: float = 0.6,
    max_decode_len: int | None = None,
    decode_rng: jax.Array | None = None,
    cache_offset: int = 0,
    go_on: Any = None,
    until: int | jax.Array | None = None,
) -> tuple[jax.Array, jax.Array] | Suspended:
    """Follows the `num_decodes` most probable sequences of every row.

    Args:
        inputs: [B, T] int32, prompts or zeros; place 0 is ignored.
        cache: pytree of the model, for B rows.
        tokens_to_logits: one step of the model for B*N rows.
        eos_id: id that ends a sequence.
        num_decodes: beams, and sequences returned, a row.
        alpha: exponent of the brevity penalty; 0 compares plain log-probabilities.
        max_decode_len: length to decode to instead of T; the cache must reach as far.
        decode_rng: ignored; beam search draws nothing.
        cache_offset: axis of the cache that is the batch; 1 where layers come first.
        go_on: state of a search that was suspended, whose cache takes the place of `cache`.
        until: the place to suspend it at; 0 for before the first step.

    Returns:
        `Suspended` where `until` is given.
        Else sequences [B, N, T] int32 and scores [B, N] float32, worst first. A score is the sum of
        log-probabilities over the brevity penalty. A row in which fewer than N sequences ended
        has empty ones of score -1e7 in front; one in which none did returns its live beams with
        plain sums of log-probabilities.

    Raises:
        ValueError: a leaf of the cache has no batch at its axis.
    """
    del decode_rng
    rows, length = inputs.shape[0], max_decode_len or inputs.shape[1]
    prompt = inputs[:, 1 : length + 1].astype(jnp.int32)
    prompt = jnp.pad(prompt, ((0, 0), (1, length - prompt.shape[1])))

    def unsettled(beams: _Beams) -> jax.Array:
        # Log-probabilities only fall, so this is the best that a live beam can come to.
        hope = beams.live_log_prob[:, 0] / brevity_penalty(alpha, length)
        alive = (beams.live_log_prob[:, 0] > NEG_INF / 2) & (hope >= beams.done_score[:, -1])
        return (beams.cur_index < length) & alive

    def step(beams: _Beams) -> _Beams:
        flat_seq = beams.live_seq.reshape(rows * num_decodes, length + 1)
        cur_token = lax.dynamic_slice_in_dim(flat_seq, beams.cur_index, 1, axis=1)
        logits, cache = tokens_to_logits(
            DecodingState(beams.cur_index, flat_seq, cur_token, beams.cache)
        )
        forced = lax.dynamic_index_in_dim(prompt, beams.cur_index + 1, 1, keepdims=False)
        return _next_beams(beams, logits, cache, forced, eos_id, alpha, cache_offset)

    beams = go_on or _first_beams(rows, num_decodes, length + 1, cache, cache_offset)
    beams = _advanced(beams, step, unsettled, lambda beams: beams.cur_index, until)
    any_done = beams.done_score[:, :1] > NEG_INF
    sequences = jnp.where(any_done[..., None], beams.done_seq, beams.live_seq)
    scores = jnp.where(any_done, beams.done_score, beams.live_log_prob)
    found = sequences[:, ::-1, 1:], scores[:, ::-1]
    return found if until is None else Suspended(*found, beams, unsettled(beams))


def _advanced(state, step, unsettled, place, until):
    """The state once no row is unsettled, or at the place `until`."""
    if isinstance(until, int) and until == 0:
        return state  # without a loop to be compiled
    here = lambda state: True if until is None else place(state) < until
    return lax.while_loop(lambda state: jnp.any(unsettled(state)) & here(state), step, state)


def _first_beams(rows, beams, places, cache, cache_offset) -> _Beams:
    empty = jnp.zeros((rows, beams, places), jnp.int32)
    free = jnp.full((rows, beams), NEG_INF, jnp.float32)
    return _Beams(
        cur_index=jnp.int32(0),
        live_seq=empty,
        live_log_prob=free.at[:, 0].set(0.0),  # one beam, or all would hold the same sequence
        done_seq=empty,
        done_score=free,
        cache=repeat_rows(cache, rows, beams, cache_offset),
    )


def _next_beams(beams, logits, cache, forced_B, eos_id, alpha, cache_offset) -> _Beams:
    """One step: the best 2N continuations of each row are sorted into ended and live ones."""
    num_beams = beams.live_seq.shape[1]
    log_prob_BC, parent_BC, token_BC = _candidates(beams.live_log_prob, logits)

    # Inside the prompt there is one sequence: the first candidate takes it, at no cost.
    in_prompt_B1 = forced_B[:, None] != 0
    first_C = jnp.where(jnp.arange(log_prob_BC.shape[1]) == 0, 0.0, NEG_INF)
    log_prob_BC = jnp.where(in_prompt_B1, first_C, log_prob_BC)
    token_BC = jnp.where(in_prompt_B1, forced_B[:, None], token_BC)
    ended_BC = (token_BC == eos_id) & ~in_prompt_B1 & (log_prob_BC > NEG_INF / 2)

    length = beams.cur_index + 1
    seq_BCL = pick(beams.live_seq, parent_BC)
    seq_BCL = lax.dynamic_update_slice_in_dim(seq_BCL, token_BC[..., None], length, axis=2)

    # Each beam ends in one way at most, so of 2N candidates at least N go on.
    live_log_prob, live_BN = lax.top_k(jnp.where(ended_BC, NEG_INF, log_prob_BC), num_beams)
    score_BC = jnp.where(ended_BC, log_prob_BC / brevity_penalty(alpha, length), NEG_INF)
    done_score, done_BN = lax.top_k(
        jnp.concatenate([beams.done_score, score_BC], axis=1), num_beams
    )
    return _Beams(
        cur_index=length,
        live_seq=pick(seq_BCL, live_BN),
        live_log_prob=live_log_prob,
        done_seq=pick(jnp.concatenate([beams.done_seq, seq_BCL], axis=1), done_BN),
        done_score=done_score,
        cache=reorder_rows(cache, pick(parent_BC, live_BN), cache_offset),
    )


def _candidates(live_log_prob_BN, logits):
    """Log-probability, beam and id, each [B, 2N], of the 2N best continuations, best first."""
    rows, beams = live_log_prob_BN.shape
    logits_BNV = logits.astype(jnp.float32).reshape(rows, beams, -1)
    # First within each beam, so that the normalized vocabulary is never written out.
    width = min(2 * beams, logits_BNV.shape[-1])
    best_BNW, token_BNW = top_k(logits_BNV, width)
    normalizer_BN = jax.nn.logsumexp(logits_BNV, axis=-1)
    log_prob_BNW = best_BNW + (live_log_prob_BN - normalizer_BN)[..., None]
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
    topp: float = 0.0,
    cache_offset: int = 0,
    initial_index: jax.Array | None = None,
    max_decode_steps: int | jax.Array | None = None,
    max_decode_steps_hard_limit: int | None = None,
    rescale_log_probs: bool = True,
    state_callback_fn: Callable[[SamplingLoopState], SamplingLoopState] | None = None,
    logit_callback_fn: Callable[[jax.Array, SamplingLoopState], jax.Array] | None = None,
    go_on: Any = None,
    until: int | jax.Array | None = None,
) -> tuple[jax.Array, jax.Array] | Suspended:
    """Draws `num_decodes` sequences for every row, id by id.

    Args:
        inputs: [B, T] int32, prompts or zeros; place 0 is ignored without `initial_index`.
        cache: pytree of the model, for B rows.
        tokens_to_logits: one step of the model for B*N rows.
        eos_id: id that ends a sequence.
        decode_rng: key to draw with, by default that of seed 0.
        num_decodes: sequences a row.
        temperature: what logits are divided by, a number or [B]; 0 takes the best id.
        topk: draw from the `topk` best ids only; 0 for all of them. The default 1 is greedy.
        topp: draw from the smallest set of ids whose probability reaches `topp`; 0 for all.
        cache_offset: axis of the cache that is the batch; 1 where layers come first.
        initial_index: [B] int32, places of the ids to start from, with a cache that is filled up
            to there and keeps one index a row.
        max_decode_steps: ids to decode after the prompt at most.
        max_decode_steps_hard_limit: bound on `max_decode_steps`, if above 0.
        rescale_log_probs: whether scores are of the distribution drawn from, which `temperature`,
            `topk` and `topp` have shaped (greedy ids then score 0), or of the model's own.
        state_callback_fn: given the state before each step and at the end, returns the state.
        logit_callback_fn: given logits [B*N, V] and the state, returns the logits to draw from;
            ids set to -1e7 there are never drawn.
        go_on: state of a search that was suspended, whose cache takes the place of `cache`.
        until: the place to suspend it at; 0 for before the first step. Only greedy ids are: what is
            drawn would differ with the rows beside it.

    Returns:
        `Suspended` where `until` is given.
        Else sequences [B, N, T] int32 and their log-probabilities [B, N] float32, worst first.

    Raises:
        ValueError: both `topk` and `topp` are set, `max_decode_steps` is not within 1 and T, or a
            leaf of the cache has no batch at its axis.
    """
    if topk and topp:
        raise ValueError(
            f"topk is {topk} and topp is {topp}, but only one can cut the distribution: set one "
            f"of temperature_sample.topk (1 by default) and temperature_sample.topp to 0."
        )
    on_state = state_callback_fn or (lambda state: state)
    on_logits = logit_callback_fn or (lambda logits, state: logits)
    rows, length = inputs.shape
    repeat = lambda per_row: jnp.repeat(per_row, num_decodes, axis=0)
    last_place = repeat(_last_place(inputs, max_decode_steps, max_decode_steps_hard_limit))
    if jnp.ndim(temperature):
        temperature = repeat(temperature)[:, None]

    def unsettled(state: SamplingLoopState) -> jax.Array:
        return ~state.ended.reshape(rows, num_decodes).all(-1)

    def step(state: SamplingLoopState) -> SamplingLoopState:
        state = on_state(state)
        logits, new_cache = tokens_to_logits(
            DecodingState(state.cur_index, state.sequences[:, :-1], state.cur_token, state.cache)
        )
        rng, step_rng = jax.random.split(state.rng)
        drawn = _draw(
            step_rng, on_logits(logits, state), temperature, topk, topp, rescale_log_probs
        )
        return _next_state(state, *drawn, last_place, eos_id).replace(cache=new_cache, rng=rng)

    rng = jax.random.key(0) if decode_rng is None else decode_rng
    state = go_on
    if state is None:
        cache = repeat_rows(cache, rows, num_decodes, cache_offset, initial_index is not None)
        index = 0 if initial_index is None else repeat(initial_index)
        state = _first_state(repeat(inputs), cache, rng, index)
    stop = until if topk == 1 else None
    state = on_state(_advanced(state, step, unsettled, lambda state: state.step, stop))
    sequences = state.sequences[:, 1:].reshape(rows, num_decodes, length)
    log_prob = state.log_prob.reshape(rows, num_decodes)
    order = jnp.argsort(log_prob, axis=1)
    found = pick(sequences, order), pick(log_prob, order)
    return found if until is None else Suspended(*found, state, unsettled(state))


def _first_state(inputs, cache, rng, index) -> SamplingLoopState:
    rows = inputs.shape[0]
    cur_index = jnp.broadcast_to(jnp.int32(index), (rows,))
    sequences = jnp.pad(inputs.astype(jnp.int32), ((0, 0), (0, 1)))
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


def _next_state(state, token, log_prob, last_place, eos_id) -> SamplingLoopState:
    """Writes the ids drawn, [B*N], where the prompt has none and the sequence has not ended."""
    places = state.sequences.shape[1]
    place = jnp.minimum(state.cur_index + 1, places - 1)
    given = jnp.take_along_axis(state.sequences, place[:, None], axis=1)[:, 0]
    ended = state.ended[:, 0]
    decoded = (given == 0) & ~ended
    token = jnp.where(decoded, token, given)
    here = place[:, None] == jnp.arange(places)
    ended_now = ended | (decoded & (token == eos_id)) | (place >= last_place)
    return state.replace(
        step=state.step + 1,
        cur_index=place,
        sequences=jnp.where(here, token[:, None], state.sequences),
        cur_token=token[:, None],
        ended=ended_now[:, None],
        log_prob=state.log_prob + jnp.where(decoded, log_prob, 0.0),
    )


def _draw(rng, logits, temperature, topk, topp, rescale_log_probs):
    """Ids [B*N] int32 and their log-probabilities [B*N], from logits [B*N, V]."""
    logits = logits.astype(jnp.float32)
    best = argmax(logits)
    if topk == 1:  # nothing is drawn, so no number for each id of the vocabulary either
        zeros = jnp.zeros(best.shape, jnp.float32)
        return best, zeros if rescale_log_probs else _log_prob(logits, best)
    greedy = jnp.broadcast_to(jnp.asarray(temperature) <= MIN_TEMPERATURE, (best.size, 1))[:, 0]
    shaped = logits / jnp.maximum(temperature, MIN_TEMPERATURE)
    if topk:
        shaped, ids = top_k(shaped, min(topk, shaped.shape[-1]))
    if topp:
        shaped = jnp.where(shaped >= _least_of_nucleus(shaped, topp), shaped, NEG_INF)
    drawn = jax.random.categorical(rng, shaped).astype(jnp.int32)
    log_prob = _log_prob(shaped, drawn)
    if topk:
        drawn = jnp.take_along_axis(ids, drawn[:, None], axis=-1)[:, 0]
    token = jnp.where(greedy, best, drawn)
    if rescale_log_probs:
        return token, jnp.where(greedy, 0.0, log_prob)
    return token, _log_prob(logits, token)


def _log_prob(logits: jax.Array, token: jax.Array) -> jax.Array:
    """Log-probabilities [rows] of ids [rows] by logits [rows, V]."""
    chosen = jnp.take_along_axis(logits, token[:, None], axis=-1)[:, 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


def _least_of_nucleus(logits: jax.Array, topp: float) -> jax.Array:
    """The least logit, [rows, 1], of the smallest set of probability `topp` (Holtzman 2020)."""
    falling = -jnp.sort(-logits, axis=-1)
    probs = jax.nn.softmax(falling)
    needed = jnp.cumsum(probs, axis=-1) - probs < topp
    return jnp.min(jnp.where(needed, falling, jnp.inf), axis=-1, keepdims=True)


def _last_place(inputs, max_steps, hard_limit) -> jax.Array:
    """The last place to be filled, [B]."""
    rows, length = inputs.shape
    if max_steps is None:
        return jnp.full((rows,), length)
    if isinstance(max_steps, int) and not 1 <= max_steps <= length:
        raise ValueError(
            f"max_decode_steps is {max_steps}, but must be between 1 and the target length "
            f"{length}: set temperature_sample.max_decode_steps, or the task's targets length."
        )
    if hard_limit:
        max_steps = jnp.minimum(max_steps, hard_limit)
    return jnp.minimum(length, jnp.sum(inputs != 0, axis=1) + max_steps)


beam_search.suspends = temperature_sample.suspends = True
