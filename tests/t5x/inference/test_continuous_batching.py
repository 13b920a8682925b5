"""A row's result does not depend on the batches it is decoded with, and there are fewer steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fakes import toy
from t5x import decoding
from t5x.inference import continuous_batching
from t5x.inference.predictor import Predictor
from t5x.partitioning import PjitPartitioner
from t5x.train_state import state_specs


def ending(decode_fn, **settings):
    """`decode_fn` with an end after ids and at positions that look random, and nowhere else."""

    def decode(tokens_to_logits, **arguments):
        def more_ends(state):
            logits, cache = tokens_to_logits(state)
            ends = (state.cur_token[:, 0] * 7 + state.cur_index * 5) % 13 == 1
            return logits.at[:, 1].add(jnp.where(ends, 9.0, -99.0)), cache

        return decode_fn(tokens_to_logits=more_ends, **settings, **arguments)

    decode.pauses = True
    return decode


CASES = {
    "greedy": ending(decoding.temperature_sample),
    "beams": ending(decoding.beam_search, alpha=0.6),
    "samples": ending(decoding.temperature_sample, topk=0),
}


@pytest.fixture(scope="module")
def params():
    partitioner = PjitPartitioner(devices=jax.devices()[:1])
    return toy.state(state_specs(toy.shared_model(), partitioner)).params


def examples(count, longest=24):
    random = np.random.default_rng(0)
    rows = np.zeros((count, 24), np.int32)
    for row in rows:
        n = random.integers(2, longest + 1)
        row[:n] = random.integers(3, 259, n)
    targets = np.zeros(24, np.int32)
    return [{"encoder_input_tokens": row, "decoder_input_tokens": targets} for row in rows]


@pytest.mark.parametrize("case", CASES)
def test_a_row_decodes_the_same_beside_any_others(params, case, monkeypatch):
    model = toy.model()
    model.decode_fn = CASES[case]
    if case == "beams":
        arguments = {"num_decodes": 3}
        plain = model.predict_batch_with_aux
        monkeypatch.setattr(
            type(model),
            "predict_batch_with_aux",
            lambda self, params, batch, rng=None, pause=None: plain(
                params, batch, rng, pause=pause, **arguments
            ),
        )
    assert model.pauses
    partitioner = PjitPartitioner(devices=jax.devices()[:1])
    given = examples(23) if case == "greedy" else examples(15, longest=16)  # two buckets, one
    together, sizes = Predictor(model, partitioner, 4, length_buckets=2), []
    resume = together._batcher._resume
    noting = lambda *passed: sizes.append(len(passed[2])) or resume(*passed)
    monkeypatch.setattr(together._batcher, "_resume", noting)
    found = together("predict_with_aux", params, given)
    alone = Predictor(model, partitioner, 4, length_buckets=2)
    alone._batcher = None
    for (ids, aux), (wanted, wanted_aux) in zip(
        found, alone("predict_with_aux", params, given), strict=True
    ):
        np.testing.assert_array_equal(ids, wanted)
        np.testing.assert_allclose(aux["scores"], wanted_aux["scores"], rtol=1e-4, atol=1e-5)
    lengths = {int((ids > 0).sum()) for ids, _ in found}
    assert len(lengths) > 1
    if case != "samples":  # which never pause
        assert (sizes[0], sizes[-1]) == (16, 4)  # four batches together, then fewer rows
        assert len(sizes) < 3 * continuous_batching.PAUSES  # six batches by themselves: six times
    assert [ids.tolist() for ids in together("predict", params, given)] == [
        ids.tolist() for ids, _ in found
    ]


def test_only_a_single_device_and_several_lengths_are_joined():
    model, one = toy.model(), PjitPartitioner(devices=jax.devices()[:1])
    joins = lambda model, partitioner, buckets: (
        Predictor(model, partitioner, 4, buckets)._batcher is not None
    )
    assert joins(model, one, 4)
    assert not joins(model, one, 1)
    assert not joins(model, PjitPartitioner(devices=jax.devices()[:2]), 4)
    model.decode_fn = lambda **arguments: None
    assert not joins(model, one, 4)


def test_sizes_are_those_of_a_batch_doubled():
    assert [continuous_batching._size(count, 6) for count in (1, 6, 7, 12, 13, 24)] == [
        6,
        6,
        12,
        12,
        24,
        24,
    ]
    assert continuous_batching._padded_rows([3, 1, 8, 7], 3).tolist() == [3, 1, 8, 7, 7, 7]


def test_gathered_rows_keep_all_their_decodes():
    rests = [{"decodes": np.arange(6).reshape(6, 1) + start, "at": 3} for start in (0, 10)]
    found = continuous_batching._gather(
        rests, np.array([0, 2, 3, 3]), 6
    )  # two decodes a row, three rows each
    assert found["decodes"][:, 0].tolist() == [0, 1, 4, 5, 10, 11, 10, 11]
    assert found["at"] == 3


def test_a_batcher_keeps_no_more_than_its_memory_allows(monkeypatch):
    rest = {"keys": np.zeros((4, 100), np.float32), "at": np.int32(0)}
    sizes = {10_000: 4, 5_000: 2, 3_100: 1, 100: 1}
    for limit, batches in sizes.items():
        monkeypatch.setattr(continuous_batching, "MAX_BYTES", limit)
        assert continuous_batching._max_batches(rest) == batches


def test_the_programs_compiled_ahead_are_those_that_decoding_uses(params, monkeypatch):
    monkeypatch.setattr(continuous_batching, "MAX_BATCHES", 2)
    model, partitioner = toy.shared_model(), PjitPartitioner(devices=jax.devices()[:1])
    predictor = Predictor(model, partitioner, 4, length_buckets=2)
    shapes = state_specs(model, partitioner).state.params
    example = {k: jax.ShapeDtypeStruct(x.shape, x.dtype) for k, x in examples(1)[0].items()}
    ahead = {program.as_text() for program in predictor.lower("predict", shapes, example)}
    # For two lengths: start, join 2 batches, resume with 1 or 2, drop rows.
    assert len(ahead) == 2 * (1 + 1 + 2 + 1)
    asked, batcher = set(), predictor._batcher
    for name in ("_start", "_gather", "_resume"):
        program = getattr(batcher, name)

        def noting(*passed, program=program):
            asked.add(program.lower(*passed).as_text())
            return program(*passed)

        setattr(batcher, name, noting)
    predictor("predict", params, examples(15))
    assert len(asked) > 5
    assert asked <= ahead
