"""Functions of a column that give what they gave, without the threads."""

import threading

import numpy as np
import seqio
import tensorflow as tf

from tasks import vocabularies
from tasks.text import inline_map, token_chunks

_FEATURES = {
    "inputs": seqio.Feature(vocabularies.byt5(), add_eos=True),
    "targets": seqio.Feature(vocabularies.byt5(), add_eos=False),
}


def rows():
    ragged = tf.ragged.constant([[5, 6, 7], [], [8]], tf.int32)
    both = tf.data.Dataset.from_tensors({"inputs": ragged, "targets": ragged + 10})
    return token_chunks.unbatch(both)


def test_rows_become_examples_of_one_axis():
    assert {spec.shape.rank for spec in rows().element_spec.values()} == {1}
    assert [x["targets"].tolist() for x in rows().as_numpy_iterator()] == [[15, 16, 17], [], [18]]


def test_eos_stands_where_seqio_puts_it():
    found, wanted = (
        [{k: v.tolist() for k, v in x.items()} for x in add(rows(), _FEATURES).as_numpy_iterator()]
        for add in (token_chunks.append_eos, seqio.preprocessors.append_eos)
    )
    assert found == wanted
    assert found[1] == {"inputs": [1], "targets": []}


def test_elements_are_mapped_one_after_the_other_in_the_thread_that_asks_for_them():
    seen = []

    def note(n):
        seen.append(threading.get_ident())
        return n

    def fn(n):
        return tf.add_n([tf.numpy_function(note, [n], tf.int64, stateful=False) for _ in range(4)])

    twice = inline_map.map_each(inline_map.map_each(tf.data.Dataset.range(50), fn), fn)
    assert list(twice.as_numpy_iterator()) == list(range(0, 800, 16))
    assert len(seen) == 400
    assert len(set(seen)) == 1


def test_a_column_of_both_goes_on_where_it_was(tmp_path):
    def column():
        documents = tf.data.Dataset.range(1, 40).map(lambda n: {"targets": tf.range(n)})
        documents = documents.map(lambda x: {"targets": tf.cast(x["targets"], tf.int32)})
        hide = lambda rows, seed: [tf.RaggedTensor.from_tensor(rows)] * 2
        with seqio.utils.map_seed_manager(0):
            return token_chunks.append_eos(token_chunks.each_run(documents, 4, hide), _FEATURES)

    wanted = [x["inputs"] for x in column().as_numpy_iterator()]
    iterator = iter(column())
    for _ in range(70):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "at"))
    again = iter(column())
    tf.train.Checkpoint(iterator=again).read(path).assert_consumed()
    left = [x["inputs"].numpy() for x in again]
    assert 0 < len(left) < len(wanted)
    for found, value in zip(left, wanted[70:], strict=True):
        np.testing.assert_array_equal(found, value)
