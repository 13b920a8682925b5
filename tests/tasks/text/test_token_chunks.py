"""Tokens are cut into chunks without loss, rows become examples, and EOS is seqio's."""

import numpy as np
import seqio
import tensorflow as tf

from tasks import vocabularies
from tasks.text import token_chunks

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


def test_eos_is_where_seqio_puts_it():
    found, wanted = (
        [{k: v.tolist() for k, v in x.items()} for x in add(rows(), _FEATURES).as_numpy_iterator()]
        for add in (token_chunks.append_eos, seqio.preprocessors.append_eos)
    )
    assert found == wanted
    assert found[1] == {"inputs": [1], "targets": []}


def test_a_pipeline_of_chunks_resumes_exactly(tmp_path):
    def column():
        documents = tf.data.Dataset.range(1, 40).map(lambda n: {"targets": tf.range(n)})
        documents = documents.map(lambda x: {"targets": tf.cast(x["targets"], tf.int32)})
        copy = lambda rows: {k: tf.RaggedTensor.from_tensor(rows) for k in ("inputs", "targets")}
        chunks = token_chunks.split_tokens(documents, 4).batch(32)
        rows = chunks.map(lambda x: copy(x["targets"]))
        return token_chunks.append_eos(token_chunks.unbatch(rows), _FEATURES)

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


def test_chunks_are_the_text_without_loss():
    documents = tf.data.Dataset.range(1, 40).map(lambda n: {"targets": tf.range(n), "id": n})
    chunks = [x["targets"] for x in token_chunks.split_tokens(documents, 64).as_numpy_iterator()]
    assert [len(chunk) for chunk in chunks[:-1]] == [64] * (len(chunks) - 1)
    wanted = np.concatenate([np.arange(n) for n in range(1, 40)])
    np.testing.assert_array_equal(np.concatenate(chunks), wanted)
