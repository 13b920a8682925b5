"""A shard gives its rows in order, the same after a restore, and its errors in one sentence."""

import gc
import threading
import weakref

import numpy as np
import pytest
import tensorflow as tf

from fakes.arrays import assert_equal_batches
from t5x.input_pipeline import shard as shard_module
from t5x.input_pipeline.mixed import MixedExamples
from t5x.input_pipeline.packing import PairRows
from t5x.input_pipeline.shard import ENDINGS, Shard

LENGTHS = {"inputs": 6, "targets": 4}


def examples(count=60):
    """Return arrays [count, length] of examples without padding 0 before their last id."""
    random = np.random.default_rng(0)
    found = {}
    for name, length in LENGTHS.items():
        sizes = random.integers(1, length + 1, [count, 1])
        found[name] = np.where(
            np.arange(length) < sizes, random.integers(1, 50, [count, length]), 0
        ).astype(np.int32)
    return found


def dataset(count=60):
    return tf.data.Dataset.from_tensor_slices(examples(count)).batch(5)


def shard(pack=True, data=None, size=4):
    examples = MixedExamples({"alone": data or dataset()})
    return Shard(examples, PairRows(LENGTHS, pack), size)


def read(iterator, path):
    iterator.begin_read(path)
    if error := iterator.end_read():
        raise error


def remaining(iterator):
    return list(iter(iterator.take, None))


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("taken", [0, 1, 3])
def test_a_restored_shard_yields_what_the_uninterrupted_one_does(tmp_path, pack, taken):
    path = str(tmp_path / "position")
    wanted = remaining(shard(pack))
    assert len(wanted) > 4
    first = shard(pack)
    assert_equal_batches([first.take() for _ in range(taken)], wanted[:taken])
    first.write(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f"position{e}" for e in ENDINGS)
    assert_equal_batches(remaining(first), wanted[taken:])  # writing changes nothing

    second = shard(pack)
    second.take()  # the position before the restore has no effect
    read(second, path)
    assert_equal_batches(remaining(second), wanted[taken:])


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ConnectionError("no route to the hub"), RuntimeError, "no route to the hub"),
        (ValueError("line 3 is not JSON"), (ValueError, RuntimeError), "line 3 is not JSON"),
        (KeyError("label"), (ValueError, RuntimeError), "KeyError: 'label'"),
        (None, ValueError, "an id is too large"),  # of TensorFlow's own
    ],
)
def test_a_source_that_fails_raises_one_sentence_without_names_of_the_graph(error, kind, said):
    def fail(_):
        raise error

    def checked(x):
        if error is None:
            tf.debugging.assert_less(x, 0, message=said)
            return x
        return tf.ensure_shape(tf.numpy_function(fail, [x], tf.int32), x.shape)

    failing = shard(data=dataset().map(lambda x: {k: checked(v) for k, v in x.items()}))
    with pytest.raises(kind, match=said) as caught:
        failing.take()
    assert not any(mark in str(caught.value) for mark in ("\n", "{{", "[Op:", "Traceback"))
    assert isinstance(caught.value.__cause__, tf.errors.OpError)


class Broken:
    """A source whose reads fail while `error` is set and block while `allowed` is not."""

    def __init__(self):
        self.error, self.allowed = None, threading.Event()
        self.allowed.set()

    def dataset(self):
        through = lambda x: tf.ensure_shape(tf.numpy_function(self._read, [x], tf.int32), x.shape)
        return dataset().map(lambda x: {name: through(value) for name, value in x.items()})

    def _read(self, value):
        self.allowed.wait(60)
        if self.error:
            raise self.error
        return value


def test_an_error_of_the_next_take_is_kept_for_it_and_there_is_no_position_then(tmp_path):
    source = Broken()
    failing = shard(data=source.dataset())
    source.error = ConnectionError("no route to the hub")
    failing.start()
    assert failing.wait()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no route to the hub"):
            failing.check()
        with pytest.raises(tf.errors.OpError):
            failing.write(str(tmp_path / "position"))
    with pytest.raises(RuntimeError, match="no route to the hub"):
        failing.take()
    assert not list(tmp_path.iterdir())


def test_a_save_that_waits_for_data_leaves_it_to_the_next_take(tmp_path):
    """As an abandoned one does, for which the training does not wait any more."""
    source = Broken()
    iterator, other = shard(data=source.dataset()), shard()
    source.allowed.clear()
    iterator.start()
    assert not iterator.wait(0.05)
    iterator.check()
    saves = [threading.Thread(target=iterator.write, args=(str(tmp_path / name),)) for name in "ab"]
    for save in saves:
        save.start()
    threading.Timer(0.2, source.allowed.set).start()
    first = iterator.take()
    for save in saves:
        save.join(20)
        assert not save.is_alive()
    assert_equal_batches([first, *remaining(iterator)], remaining(other))


def test_a_position_of_another_pipeline_is_refused(tmp_path):
    path = str(tmp_path / "position")
    shard().write(path)
    with pytest.raises((tf.errors.OpError, AssertionError)):
        read(shard(data=dataset().shuffle(4, seed=0)), path)


def test_a_shard_whose_reading_failed_can_read_another_position(tmp_path):
    path, moved = str(tmp_path / "position"), shard()
    moved.take()
    moved.write(path)
    failing = shard()
    failing.begin_read(str(tmp_path / "absent"))
    assert isinstance(failing.end_read(), tf.errors.OpError)
    failing.begin_read(path)
    assert failing.end_read() is None
    expected, found = moved.take(), failing.take()
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


def test_an_interrupted_take_loses_no_rows(monkeypatch):
    iterator, other = shard(), shard()

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shard_module, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            iterator.take()
    assert_equal_batches(remaining(iterator), remaining(other))


def test_a_closed_shard_stops_reading_an_endless_source():
    endless = shard(data=dataset().repeat(), size=10**9)
    endless.start()
    endless.close()
    assert endless.take() is None


def test_a_dropped_shard_is_freed():
    iterator = shard()
    iterator.take()
    iterator.wait()
    dropped = weakref.ref(iterator)
    del iterator
    gc.collect()
    assert dropped() is None
