"""Rows that go on in other batches decode what they would have in their own, in fewer steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy

from t5x import decoding, inference, pooled
from t5x.partitioning import PjitPartitioner
from t5x.train_state import state_specs

ANY = {"encoder_input_tokens": (1, 1), "decoder_input_tokens": (1, 1)}


def ending(decode_fn, **settings):
    """`decode_fn` with an end behind ids and at places that look random, and nowhere else."""

    def decode(tokens_to_logits, **arguments):
        def more_ends(state):
            logits, cache = tokens_to_logits(state)
            ends = (state.cur_token[:, 0] * 7 + state.cur_index * 5) % 13 == 1
            return logits.at[:, 1].add(jnp.where(ends, 9.0, -99.0)), cache

        return decode_fn(tokens_to_logits=more_ends, **settings, **arguments)

    decode.suspends = True
    return decode


CASES = {
    "greedy": ending(decoding.temperature_sample),
    "beams": ending(decoding.beam_search, alpha=0.6),
    "samples": ending(decoding.temperature_sample, topk=0),
}


@pytest.fixture(scope="module")
def params():
    partitioner = PjitPartitioner(devices=jax.devices()[:1])
    return toy.state(state_specs(toy.model(), partitioner, ANY)).params


def examples(count, length=24):
    random = np.random.default_rng(0)
    rows = np.zeros((count, length), np.int32)
    for row in rows:
        n = random.integers(2, length + 1)
        row[:n] = random.integers(3, 259, n)
    targets = np.zeros(24, np.int32)
    return [{"encoder_input_tokens": row, "decoder_input_tokens": targets} for row in rows]


@pytest.mark.parametrize("case", CASES)
def test_a_row_decodes_the_same_in_any_company(params, case, monkeypatch):
    moved, advanced = [], []
    merged, advance = pooled._merged, pooled._Part.advanced
    monkeypatch.setattr(pooled, "MOST_BATCHES", 4)
    monkeypatch.setattr(
        pooled, "_merged", lambda pool, *more: moved.append(len(pool)) or merged(pool, *more)
    )
    monkeypatch.setattr(
        pooled._Part, "advanced", lambda part, *more: advanced.append(part) or advance(part, *more)
    )
    model = toy.model()
    model.decode_fn = CASES[case]
    if case == "beams":
        arguments = {"num_decodes": 3}
        plain = model.predict_batch_with_aux
        monkeypatch.setattr(
            type(model),
            "predict_batch_with_aux",
            lambda self, params, batch, decode_rng=None, go_on=None, until=None: plain(
                params, batch, decode_rng=decode_rng, go_on=go_on, until=until, **arguments
            ),
        )
    assert model.suspends
    partitioner = PjitPartitioner(devices=jax.devices()[:1])
    given = examples(23)
    together = inference.Predictor(model, partitioner, 4, length_buckets=2)
    found = together("predict_with_aux", params, given)
    alone = inference.Predictor(model, partitioner, 4, length_buckets=2)
    alone._pool = None
    for (ids, aux), (wanted, wanted_aux) in zip(
        found, alone("predict_with_aux", params, given), strict=True
    ):
        np.testing.assert_array_equal(ids, wanted)
        np.testing.assert_allclose(aux["scores"], wanted_aux["scores"], rtol=1e-4, atol=1e-5)
    lengths = {int((ids > 0).sum()) for ids, _ in found}
    assert len(lengths) > 1
    if case != "samples":  # which are never suspended
        assert moved
        assert len(advanced) < 6 * pooled.PARTS  # as often as six batches would by themselves
    assert [ids.tolist() for ids in together("predict", params, given)] == [
        ids.tolist() for ids, _ in found
    ]


def test_only_a_single_device_and_several_lengths_are_pooled():
    model, one = toy.model(), PjitPartitioner(devices=jax.devices()[:1])
    pools = lambda model, partitioner, buckets: (
        inference.Predictor(model, partitioner, 4, buckets)._pool is not None
    )
    assert pools(model, one, 4)
    assert not pools(model, one, 1)
    assert not pools(model, PjitPartitioner(devices=jax.devices()[:2]), 4)
    model.decode_fn = lambda **arguments: None
    assert not pools(model, one, 4)


def test_thin_batches_are_taken_apart():
    """Eleven rows of four batches of four fit three; each row takes its numbers along."""

    def part(name, rows):
        taken = pooled._Part.__new__(pooled._Part)
        taken.places = {row: f"{name}{row}" for row in rows}
        taken.rest = {
            "one": np.array([f"{name}{row}" for row in range(4)], object), "at": 3
        }  # fmt: skip
        return taken

    def move(into, source, pairs, count):
        one = into["one"].copy()
        for there, here in pairs[:count]:
            one[here] = source["one"][there]
        return into | {"one": one}

    pool = [part("a", (0, 1, 3)), part("b", (2, 3)), part("c", (0, 1, 2, 3)), part("d", (1, 2))]
    merged = pooled._merged(pool, 4, move)
    assert len(merged) == 3
    held = [place for part in merged for place in part.places.values()]
    assert sorted(held) == ["a0", "a1", "a3", "b2", "b3", "c0", "c1", "c2", "c3", "d1", "d2"]
    for part in merged:
        assert {row: part.rest["one"][row] for row in part.places} == part.places


def test_what_is_compiled_ahead_is_what_is_asked_for(params):
    model, partitioner = toy.model(), PjitPartitioner(devices=jax.devices()[:1])
    predictor = inference.Predictor(model, partitioner, 4, length_buckets=2)
    shapes = state_specs(model, partitioner, ANY).state.params
    example = {k: jax.ShapeDtypeStruct(x.shape, x.dtype) for k, x in examples(1)[0].items()}
    ahead = [program.as_text() for program in predictor.lower("predict", shapes, example)]
    assert len(ahead) == 2 * 3  # for each length to begin, to go on and to move
    laid_out, pool = predictor.laid_out(params), predictor._pool
    (batch, _, number), *_ = predictor.batches(examples(4))
    begin = pool._begin.lower(laid_out, batch, number)
    rest = pool._begin(laid_out, batch, number)
    targets, pairs = pooled._shape_alone(batch), np.zeros((4, 2), np.int32)
    go_on = pool._go_on.lower(laid_out, rest, targets, np.int32(3))
    move = pool._move.lower(rest, rest, pairs, np.int32(1))
    assert {program.as_text() for program in (begin, go_on, move)} <= set(ahead)
