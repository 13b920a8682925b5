"""Functions of a column that give what they gave, without the threads."""

import threading

import tensorflow as tf

from tasks.text import inline_map


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
