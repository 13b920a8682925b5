"""Rows hold what seqio's converter would put into them, to the last id."""

import numpy as np
import pytest
import seqio
import tensorflow as tf

from fakes.refuses import refuses
from t5x.input_pipeline.packing import PairRows

LENGTHS = {"inputs": 9, "targets": 6}


def examples(count, seed=0, shortest=1):
    random = np.random.default_rng(seed)
    draw = lambda length: random.integers(1, 50, random.integers(shortest, length + 1)).tolist()
    return [{k: draw(n) for k, n in LENGTHS.items()} for _ in range(count)]


def padded(some):
    return {
        k: np.array([x[k] + [0] * (n - len(x[k])) for x in some], np.int32).reshape(-1, n)
        for k, n in LENGTHS.items()
    }


def converted(some, pack):
    spec = {k: tf.TensorSpec([None], tf.int32) for k in LENGTHS}
    dataset = tf.data.Dataset.from_generator(lambda: iter(some), output_signature=spec)
    rows = list(seqio.EncDecFeatureConverter(pack=pack)(dataset, LENGTHS).as_numpy_iterator())
    return {k: np.stack([row[k] for row in rows]) for k in rows[0]}


def laid(some, pack, chunk, open_rows=1):
    rows = PairRows(LENGTHS, pack, open_rows=open_rows)
    for i in range(0, len(some), chunk):
        rows.add(padded(some[i : i + chunk]))
    rows.end()
    return rows.first(rows.complete)


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
        assert found[name].dtype == value.dtype == np.int32


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("shortest", [0, pytest.param(1, marks=pytest.mark.slow), 6])
def test_rows_are_seqios(pack, shortest):
    some = examples(50, shortest=shortest)  # several groups of 9; a row ends after each
    assert_same(laid(some, pack, 7), converted(some, pack))


def test_an_example_goes_into_the_open_row_that_it_fills_best():
    sizes = [(3, 5), (3, 2), (6, 1), (4, 3), (2, 1), (9, 6)]  # in rows of 9 and 6
    some = [{"inputs": [i + 1] * n, "targets": [i + 1] * m} for i, (n, m) in enumerate(sizes)]
    rows = lambda n: [sorted({*row}) for row in laid(some, True, 4, n)["encoder_input_tokens"]]
    assert rows(1) == [[0, 1], [2, 3], [0, 4, 5], [6]]
    # The third fills the first row; the fourth and the fifth go beside the second.
    assert rows(3) == [[1, 3], [2, 4, 5], [6]]
    assert rows(2) == rows(3)


@pytest.mark.parametrize(("pack", "open_rows"), [(True, 1), (True, 3), (False, 1), (False, 3)])
def test_rows_taken_one_by_one_and_carried_over_are_the_same(pack, open_rows):
    some = examples(40)
    complete = laid(some, pack, 40, open_rows)
    rows, found = PairRows(LENGTHS, pack, open_rows=open_rows), []
    for i in range(0, 40, 5):
        rows.add(padded(some[i : i + 5]))
        while rows.complete:
            found.append(rows.first(1))
            rows.drop(1)
        again = PairRows(LENGTHS, pack, open_rows=open_rows)
        again.load({k: np.array(v) for k, v in rows.state().items()})
        rows = again
    rows.end()
    found.append(rows.first(rows.complete))
    assert_same({k: np.concatenate([x[k] for x in found]) for k in complete}, complete)


def test_several_open_rows_hold_each_example_once_as_it_is():
    some = examples(60)
    rows, found = laid(some, True, 7, open_rows=4), []
    for row in range(len(rows["encoder_input_tokens"])):
        part = {name: values[row] for name, values in rows.items()}
        for n in range(1, part["encoder_segment_ids"].max() + 1):
            of = lambda side, kind, n=n: part[f"{side}_{kind}"][part[f"{side}_segment_ids"] == n]  # noqa: B023
            inputs, targets = of("encoder", "input_tokens"), of("decoder", "target_tokens")
            found.append({"inputs": inputs.tolist(), "targets": targets.tolist()})
            assert of("decoder", "input_tokens").tolist() == [0, *targets[:-1]]
            for side, ids in (("encoder", inputs), ("decoder", targets)):
                assert of(side, "positions").tolist() == list(range(len(ids)))
    assert sorted(map(str, found)) == sorted(map(str, some))
    assert len(rows["encoder_input_tokens"]) < len(laid(some, True, 7)["encoder_input_tokens"])


def test_longer_examples_are_cut_and_counted_or_refused():
    long = {"inputs": np.arange(1, 13, dtype=np.int32)[None], "targets": np.ones((1, 2), np.int32)}
    rows = PairRows(LENGTHS, pack=False)
    rows.add({k: np.repeat(v, 3, 0) for k, v in long.items()})
    assert (rows.complete, rows.truncated) == (3, 3)
    assert rows.first(1)["encoder_input_tokens"].tolist() == [list(range(1, 10))]
    with refuses("TASK_FEATURE_LENGTHS"):
        PairRows(LENGTHS, pack=False, trim=False).add(long)


def test_examples_of_other_features_are_refused():
    dataset = tf.data.Dataset.from_tensors({"inputs": [1, 2], "targets": [[1.0]]})
    with pytest.raises(ValueError, match="'targets'"):
        PairRows(LENGTHS, pack=False).examples(dataset)
