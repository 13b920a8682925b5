"""Decoding a toy model whose next id depends on the row and on the two ids before.

The cache of the toy carries the id before last, so a beam that gets another beam's cache goes
wrong at once. The expected results are computed by plain loops over lists.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fakes.refuses import refuses
from t5x import decoding
from t5x.decoding import (
    DecodingState,
    beam_search,
    check_decode_fn,
    temperature_sample,
)

EOS = 1
NEG_INF = decoding.NEG_INF


class Toy:
    """Random logits [row, id before last, last id, next id], which travel in the cache."""

    def __init__(self, rows, vocab, seed, scale=2.0):
        self.rows, self.vocab = rows, vocab
        rng = np.random.default_rng(seed)
        self.logits = (scale * rng.normal(size=(rows, vocab, vocab, vocab))).astype(np.float32)

    def cache(self, offset=0):
        """Leaves with the batch at axis `offset`, and two without a batch."""
        own = {"logits": self.logits, "before": np.zeros(self.rows, np.int32)}
        if offset:  # three layers that hold the same
            own = {name: np.stack([leaf] * 3) for name, leaf in own.items()}
        shared = {"position": np.int32(0), "cached_bias": np.zeros((5, 7), np.float32)}
        return {"own": own, "shared": shared}

    @staticmethod
    def step(state: DecodingState):
        own, shared = state.cache["own"], state.cache["shared"]
        last = state.cur_token[:, 0]
        before = own["before"].reshape(-1, last.size)[-1]
        logits = own["logits"].reshape(-1, last.size, *own["logits"].shape[-3:])[-1]
        own = {**own, "before": jnp.broadcast_to(last, own["before"].shape)}
        shared = {**shared, "position": shared["position"] + 1}
        return logits[jnp.arange(last.size), before, last], {"own": own, "shared": shared}

    def next_log_probs(self, row, ids):
        """Log-probabilities [V] of what follows `ids`, in float64."""
        before, last = [0, 0, *ids][-2:]
        logits = self.logits[row, before, last].astype(np.float64)
        return logits - np.log(np.exp(logits).sum())

    def log_prob(self, row, ids, start=0):
        """Teacher forcing: the log-probability of ids[start:] up to the first EOS of these."""
        total = 0.0
        for place in range(start, len(ids)):
            total += self.next_log_probs(row, ids[:place])[ids[place]]
            if ids[place] == EOS:
                break
        return total


def penalty(alpha, length):
    return ((5 + length) / 6) ** alpha


def padded(ids, length):
    return list(ids) + [0] * (length - len(ids))


def plain_beam_search(toy, row, beams, length, alpha):
    """Beam search on lists, which never stops early: [(score, ids)], best first."""
    live, done = [(0.0, [])], []
    for place in range(length):
        grown = [
            (log_prob + after, [*ids, token])
            for log_prob, ids in live
            for token, after in enumerate(toy.next_log_probs(row, ids))
        ]
        grown = sorted(grown, reverse=True)[: 2 * beams]
        done += [(p / penalty(alpha, place + 1), ids) for p, ids in grown if ids[-1] == EOS]
        done = sorted(done, reverse=True)[:beams]
        live = [(p, ids) for p, ids in grown if ids[-1] != EOS][:beams]
    return done or live


def greedy_after(toy, row, ids, length):
    ids = list(ids)
    while len(ids) < length:
        ids.append(int(toy.next_log_probs(row, ids).argmax()))
        if ids[-1] == EOS:
            break
    return padded(ids, length)


def check_against(found, decodes_NT, scores_N):
    """`found` [(score, ids)] best first, against one row of a beam search."""
    beams, length = decodes_NT.shape
    found = found + [(NEG_INF, [])] * (beams - len(found))
    np.testing.assert_array_equal(decodes_NT[::-1], [padded(ids, length) for _, ids in found])
    np.testing.assert_allclose(scores_N[::-1], [score for score, _ in found], rtol=1e-5, atol=1e-5)


TRACED = {"cache", "temperature", "topp", "alpha", "decode_rng", "initial_index"}


def run(decode, toy, length, inputs=None, step=Toy.step, cache_offset=0, **arguments):
    inputs = np.zeros((toy.rows, length), np.int32) if inputs is None else inputs
    arguments = {"cache": toy.cache(cache_offset), "cache_offset": cache_offset, **arguments}
    arguments |= {"tokens_to_logits": step, "eos_id": EOS}
    decode = jax.jit(decode, static_argnames=sorted({*arguments} - TRACED))
    return tuple(map(np.asarray, decode(inputs, **arguments)))


sample = functools.partial(run, temperature_sample)
beams_of = functools.partial(run, beam_search)


@pytest.mark.parametrize(
    ("beams", "offset", "alpha"),
    [(1, 0, 0.6), (2, 0, 0.0), (3, 1, 1.5), (5, 0, 0.6), (4, 1, -0.5)],
)
def test_search_finds_what_plain_loops_find(beams, offset, alpha):
    length = 7
    toy = Toy(rows=6, vocab=9, seed=beams)
    decodes, scores = beams_of(toy, length, cache_offset=offset, num_decodes=beams, alpha=alpha)
    assert decodes.dtype == np.int32
    assert scores.dtype == np.float32
    for row in range(toy.rows):
        found = plain_beam_search(toy, row, beams, length, alpha)
        check_against(found, decodes[row], scores[row])


def test_decoding_stops_as_soon_as_no_row_can_change():
    steps = []

    def step(state):
        jax.debug.callback(steps.append, state.cur_index)
        return Toy.step(state)

    def count(decode, **arguments):
        steps.clear()
        run(decode, toy, 9, step=step, **arguments)
        jax.effects_barrier()
        return len(steps)

    toy = Toy(rows=2, vocab=5, seed=6)
    toy.logits[:, 0, 0, EOS] = 30.0  # the empty answer is certain
    assert count(temperature_sample, temperature=0.0) == 1
    assert count(beam_search, num_decodes=1) == 1
    toy.logits[1, ..., EOS] = -30.0  # for one row it now is impossible
    assert count(temperature_sample, temperature=0.0) == 9
    assert count(beam_search, num_decodes=1) == 9


def test_max_decode_len_goes_further_than_the_inputs_or_less_far():
    toy = Toy(rows=2, vocab=6, seed=7)
    full, scores = beams_of(toy, 8, num_decodes=3)
    further, further_scores = beams_of(toy, 2, num_decodes=3, max_decode_len=8)
    np.testing.assert_array_equal(further, full)
    np.testing.assert_array_equal(further_scores, scores)
    short, _ = beams_of(toy, 8, num_decodes=3, max_decode_len=3)
    np.testing.assert_array_equal(short, beams_of(toy, 3, num_decodes=3)[0])


def test_equal_beams_keep_upstreams_order():
    """Of equal candidates the lowest id of the worst beam comes first."""
    logits = np.array([[0, -1, 0, 0, 0, 0]], np.float32)
    step = lambda state: (jnp.repeat(logits, len(state.cur_token), axis=0), {})
    decodes, _ = beam_search(np.zeros((1, 4), np.int32), {}, step, EOS, num_decodes=2)
    assert decodes.tolist() == [[[2, 2, 2, 2], [2, 2, 2, 0]]]


def test_a_search_ends_without_a_beam_of_the_least_log_probability():
    toy = Toy(rows=2, vocab=6, seed=3)
    best = np.log(softmax(toy.logits[:, 0, 0])).max()
    decodes, _ = beams_of(toy, 5, num_decodes=2, min_log_prob=float(best + 0.1))
    np.testing.assert_array_equal(decodes, beams_of(toy, 5, num_decodes=2, max_decode_step=1)[0])


def softmax(logits):
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def shaped(logits, temperature=1.0, topk=0, topp=0.0):
    """Return the distribution over the most probable ids, as many as requested."""
    probs = softmax(logits / temperature)
    order = np.argsort(-probs)
    before = np.cumsum(probs[order]) - probs[order]
    kept = order[: topk or None] if not topp else order[before < topp]
    return np.where(np.isin(np.arange(probs.size), kept), probs, 0) / probs[kept].sum()


@pytest.mark.parametrize(
    ("arguments", "rescales"),
    [
        ({"topk": 0}, True),
        ({"topk": 0, "temperature": 0.6}, False),
        ({"topk": 3, "temperature": 2.0}, True),
        ({"topk": 99}, False),
        ({"topk": 0, "topp": 0.0}, False),
        ({"topk": 0, "topp": 0.5, "temperature": 3.0}, True),
    ],
)
def test_ids_are_drawn_with_the_first_key_of_each_split_for_all_rows_at_once(arguments, rescales):
    """As upstream draws them, from the vocabulary of which ids that are left out score -1e7."""
    rows, copies, length = 2, 3, 6
    toy = Toy(rows, vocab=8, seed=8, scale=1.0)
    key = jax.random.key(3)
    given = {"decode_rng": key, "num_decodes": copies, "rescale_log_probs": rescales}
    decodes, log_probs = sample(toy, length, **given, **arguments)
    ids = [[] for _ in range(rows * copies)]
    scores = np.zeros(rows * copies)
    for _ in range(length):
        now, key = jax.random.split(key)
        logits = [toy.logits[n // copies, *[0, 0, *row][-2:]] for n, row in enumerate(ids)]
        probs = np.array([shaped(each.astype(np.float64), **arguments) for each in logits])
        scaled = np.array(logits) / np.float32(arguments.get("temperature", 1.0))
        drawn = jax.random.categorical(now, np.where(probs > 0, scaled, np.float32(NEG_INF)))
        for n, row in enumerate(ids):
            ends = EOS in row
            score = probs[n] if rescales else softmax(logits[n])
            scores[n] += 0 if ends else np.log(score[drawn[n]])
            row.append(0 if ends else int(drawn[n]))
    order = np.argsort(scores.reshape(rows, copies), kind="stable")
    found = np.take_along_axis(np.array(ids).reshape(rows, copies, length), order[..., None], 1)
    np.testing.assert_array_equal(decodes, found)
    scores = np.take_along_axis(scores.reshape(rows, copies), order, 1)
    np.testing.assert_allclose(log_probs, scores, rtol=1e-4, atol=1e-5)


def test_greedy_by_temperature_and_greedy_by_topk_agree_and_score_nothing():
    toy = Toy(rows=4, vocab=9, seed=11)
    by_temperature, cold = sample(toy, 7, temperature=0.0, topk=0)
    by_topk, scores = sample(toy, 7, topk=1)
    np.testing.assert_array_equal(by_temperature, by_topk)
    np.testing.assert_array_equal(cold, 0.0)
    np.testing.assert_allclose(scores, 0.0, atol=1e-6)


def test_each_row_may_have_its_own_temperature():
    toy = Toy(rows=2, vocab=8, seed=12, scale=1.0)
    temperature = np.array([0.0, 5.0], np.float32)
    decodes, log_probs = sample(toy, 1, temperature=temperature, topk=0, num_decodes=200)
    assert (decodes[0] == toy.logits[0, 0, 0].argmax()).all()
    assert (log_probs[0] == 0).all()
    assert len(np.unique(decodes[1])) == toy.vocab


PROMPTS = np.zeros((4, 8), np.int32)
PROMPTS[0, 1:4] = 5, EOS, 6
PROMPTS[1, 1] = 3
PROMPTS[3, 1:] = 2, 3, 4, 5, 6, 2, 3
PROMPT_LENGTHS = (3, 1, 0, 7)


def test_prompts_are_kept_and_not_scored_and_their_ends_end_nothing():
    toy = Toy(rows=4, vocab=7, seed=14)
    decodes, log_probs = sample(toy, 8, PROMPTS, temperature=0.0, rescale_log_probs=False)
    beams, scores = beams_of(toy, 8, PROMPTS, num_decodes=3, alpha=0.0)
    for row, given in enumerate(PROMPT_LENGTHS):
        prompt = list(PROMPTS[row, 1 : given + 1])
        np.testing.assert_array_equal(decodes[row, 0], greedy_after(toy, row, prompt, 8))
        expected = toy.log_prob(row, list(decodes[row, 0]), start=given)
        np.testing.assert_allclose(log_probs[row, 0], expected, rtol=1e-5, atol=1e-6)
        for ids, score in zip(beams[row], scores[row], strict=True):
            if score > NEG_INF / 2:
                assert list(ids[:given]) == prompt
                expected = toy.log_prob(row, list(ids), start=given)
                np.testing.assert_allclose(score, expected, rtol=1e-5, atol=1e-6)


def test_decoding_continues_from_a_filled_cache():
    toy = Toy(rows=4, vocab=7, seed=14)
    greedy = {"temperature": 0.0, "rescale_log_probs": False}
    full, full_scores = sample(toy, 8, PROMPTS, **greedy)
    index = np.array(PROMPT_LENGTHS)
    cache = toy.cache()
    cache["own"]["before"] = PROMPTS[np.arange(4), np.maximum(index - 1, 0)]
    cache["own"]["cache_index"] = index
    seen = []

    def step(state):
        seen.append(state.cache["own"]["cache_index"].shape)
        return toy.step(state)

    decodes, scores = sample(
        toy, 8, PROMPTS, step, cache=cache, num_decodes=2, initial_index=index, **greedy
    )
    assert set(seen) == {(8,)}
    for copy in range(2):
        np.testing.assert_array_equal(decodes[:, copy], full[:, 0])
        np.testing.assert_allclose(scores[:, copy], full_scores[:, 0], rtol=1e-5)


@pytest.mark.parametrize(
    "limits",
    [{"max_decode_steps": 2}, {"max_decode_steps": 99, "max_decode_steps_hard_limit": 2}],
)
def test_max_decode_steps_counts_after_the_prompt(limits):
    toy = Toy(rows=4, vocab=7, seed=15)
    toy.logits[..., [0, EOS]] = -50.0
    decodes, _ = sample(toy, 8, PROMPTS, temperature=0.0, **limits)
    expected = [min(given + 2, 8) for given in PROMPT_LENGTHS]
    np.testing.assert_array_equal((decodes[:, 0] != 0).sum(-1), expected)


def test_one_token_classification_by_a_logit_callback():
    """Only the ids of the labels may come first, and only the end after them."""
    labels = [3, 6]
    toy = Toy(rows=8, vocab=9, seed=16)

    def only_labels(logits, state):
        allowed = jnp.where(
            (state.cur_index == 0)[:, None],
            jnp.zeros(toy.vocab, bool).at[jnp.array(labels)].set(True),
            jnp.arange(toy.vocab) == EOS,
        )
        return jnp.where(allowed, logits, NEG_INF)

    decodes, log_probs = sample(
        toy, 4, temperature=0.0, rescale_log_probs=False, logit_callback_fn=only_labels
    )
    first = toy.logits[:, 0, 0][:, labels]
    np.testing.assert_array_equal(decodes[:, 0, 0], np.array(labels)[first.argmax(-1)])
    np.testing.assert_array_equal(decodes[:, 0, 1:], [[EOS, 0, 0]] * toy.rows)
    # The score is then the label's share among the labels.
    np.testing.assert_allclose(
        log_probs[:, 0], np.log([softmax(x).max() for x in first]), rtol=1e-4
    )


def test_beams_are_held_to_a_lattice_by_wrapping_the_model():
    """Restoring diacritics: each place allows the variants of one letter, whatever the beam."""
    variants = [{2, 3}, {4}, {5, 6, 7}, {EOS}]
    ways = [padded(ids, 9) for ids in itertools.product(*variants)]
    allowed = jnp.array([[token in place for token in range(9)] for place in variants])
    steps = []

    def step(state):
        jax.debug.callback(steps.append, state.cur_index)
        logits, cache = Toy.step(state)
        return jnp.where(allowed[state.cur_index], logits, -jnp.inf), cache

    decodes, scores = beams_of(Toy(rows=3, vocab=9, seed=17), 9, step=step, num_decodes=8)
    jax.effects_barrier()
    for row in range(3):  # eight places and six ways: two places stay free
        assert sorted(decodes[row].tolist()) == sorted(ways + [[0] * 9] * 2)
    np.testing.assert_array_equal(scores[:, :2], NEG_INF)
    assert len(steps) == 4, "nothing was left to follow"


def test_the_state_callback_sees_each_step_and_may_change_it():
    toy = Toy(rows=2, vocab=6, seed=18)
    toy.logits[..., EOS] = -50.0
    seen = []

    def feed_four(state):
        jax.debug.callback(lambda step: seen.append(int(step)), state.step, ordered=True)
        return state.replace(cur_token=jnp.full_like(state.cur_token, 4))

    decodes, _ = sample(toy, 3, temperature=0.0, state_callback_fn=feed_four)
    jax.effects_barrier()
    assert seen == [0, 1, 2, 3]
    for row in range(2):
        logits = toy.logits[row]
        np.testing.assert_array_equal(
            decodes[row, 0], [logits[0, 4].argmax(), *[logits[4, 4].argmax()] * 2]
        )


def test_an_end_that_the_state_callback_writes_ends_the_sequence():
    toy = Toy(rows=2, vocab=6, seed=18)
    toy.logits[..., EOS] = -50.0

    def end_at_two(state):
        assert state.sequences.shape == (2, 8)  # the start, six ids, and upstream's spare place
        here = (jnp.arange(8) == 2) & (state.step == 1)
        return state.replace(sequences=jnp.where(here, EOS, state.sequences))

    decodes, _ = sample(toy, 6, temperature=0.0, state_callback_fn=end_at_two)
    np.testing.assert_array_equal(decodes[:, 0, 1:], [[EOS, 0, 0, 0, 0]] * 2)


def test_the_model_is_given_upstreams_shapes():
    toy = Toy(rows=5, vocab=6, seed=19)  # as many rows as `cached_bias` has at axis 0
    shapes = {}

    def step(state):
        shapes.update(jax.tree.map(jnp.shape, vars(state)))
        return toy.step(state)

    inputs = np.zeros((5, 4), np.int32)
    cache = {
        "own": {"before": (10,), "logits": (10, 6, 6, 6)},
        "shared": {"cached_bias": (5, 7), "position": ()},
    }
    jax.eval_shape(lambda: beam_search(inputs, toy.cache(), step, EOS, num_decodes=2))
    assert shapes == {"cur_index": (), "sequences": (10, 5), "cur_token": (10, 1), "cache": cache}
    jax.eval_shape(lambda: temperature_sample(inputs, toy.cache(), step, EOS, num_decodes=2))
    assert shapes == {
        "cur_index": (10,),
        "sequences": (10, 4),
        "cur_token": (10, 1),
        "cache": cache,
    }


@pytest.mark.parametrize(
    ("arguments", "setting", "value"),
    [
        ({"topk": 3, "topp": 0.5}, "topk", 3),
        ({"topp": 0.5}, "topk", 1),
        ({"max_decode_steps": 9}, "max_decode_steps", 9),
        ({"max_decode_steps": 0}, "max_decode_steps", 0),
        ({"cache_offset": 1}, "A cache leaf of shape (3, 2)", ...),
    ],
)
def test_bad_arguments_are_named(arguments, setting, value):
    toy = Toy(rows=3, vocab=6, seed=21)
    cache = {**toy.cache(), "key": np.zeros((3, 2), np.float32)}
    with refuses(setting, value):
        temperature_sample(np.zeros((3, 4), np.int32), cache, toy.step, EOS, **arguments)


def test_a_decode_function_that_does_not_fit_is_refused():
    check_decode_fn(functools.partial(beam_search, alpha=0.9))

    def misspelt(inputs, cache, tokens_to_logit, eos_id, num_decodes=1):
        """Lacks the s."""

    with refuses("models.EncoderDecoderModel.decode_fn", misspelt):
        check_decode_fn(misspelt)


@pytest.mark.parametrize("limit", [0, 3, 9])
def test_max_decode_step_ends_a_search(limit):
    """Beams that have not ended then are returned as they are."""
    toy = Toy(rows=2, vocab=6, seed=3)
    steps = limit if 0 < limit < 5 else 5
    never = lambda state: (toy.step(state)[0].at[:, EOS].set(NEG_INF), toy.step(state)[1])
    prompt = jnp.zeros((2, 5), jnp.int32)
    found, _ = beam_search(prompt, toy.cache(), never, EOS, 2, max_decode_step=limit)
    full, _ = beam_search(prompt, toy.cache(), never, EOS, 2, max_decode_len=steps)
    np.testing.assert_array_equal(found[..., :steps], full)
    assert not found[..., steps:].any()
