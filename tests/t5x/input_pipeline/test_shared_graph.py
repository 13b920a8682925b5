"""Shards with one graph read what they read with a graph each, from any position."""

import pytest
import seqio
import tensorflow as tf

import tasks.diacritics
import tasks.romanian  # noqa: F401 (registers tasks)
from fakes.arrays import assert_equal_batches
from t5x import batches
from t5x.input_pipeline import shared_graph
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.encoder_rows import EncoderFeatureConverter
from tasks import mixtures, sources

LENGTHS = {"inputs": 128, "targets": 128}


def stream(task, converter=seqio.EncDecFeatureConverter):
    cfg = DatasetConfig(task, LENGTHS, "train", 8, shuffle=True, seed=0, pack=True)
    return batches.TrainStream(cfg, converter, (0, 6), seed=1, shards=4)


def take(iterator, count):
    return [next(iterator) for _ in range(count)]


def test_a_pipeline_is_made_once_and_knows_each_shard():
    made = []

    def make(info):
        made.append(info)
        assert info.num_shards == 4
        rows = ["of its own"]
        return tf.data.Dataset.range(3).map(lambda x: 10 * info.index + x), rows

    (one, rows), (other, other_rows) = shared_graph.datasets(make, [1, 3], 4)
    assert [*one.as_numpy_iterator()] == [10, 11, 12]
    assert [*other.as_numpy_iterator()] == [30, 31, 32]
    assert one.element_spec == tf.TensorSpec([], tf.int64)
    assert [[*info.indices] for info in made] == [[1, 3]]
    assert rows == other_rows
    assert rows is not other_rows


@pytest.fixture
def graphs(monkeypatch):
    """The number of shards of each graph that was made."""
    found, datasets = [], shared_graph.datasets

    def counted(make, indices, count):
        found.append(len(indices))
        return datasets(make, indices, count)

    monkeypatch.setattr(shared_graph, "datasets", counted)
    return found


@pytest.mark.parametrize("order", ["records", "parts"])
@pytest.mark.parametrize(
    "task",
    [
        *("ro_mini_span_corruption", "ro_mini_ul2", "ro_mini_byt5_span_corruption"),
        *("ro_mini_whole_words", "ro_mini_masked_lm", "ro_mini_bert", "mixture"),
        "ro_mini_diacritics",
    ],
)
def test_shards_read_what_they_read_with_a_graph_each(task, order, graphs, monkeypatch, tmp_path):
    if order == "parts":
        monkeypatch.setattr(sources, "full_shuffle", lambda: 0.0)
    if task == "mixture" and task not in seqio.MixtureRegistry.names():
        parts = {"ro_mini_prefix_lm": 2, "ro_mini_span_corruption": 1}
        mixtures.add(task, parts, epochs={"ro_mini_prefix_lm": 3})
    encodes = task in ("ro_mini_masked_lm", "ro_mini_bert")
    make = lambda: stream(task, *[EncoderFeatureConverter] * encodes)
    shared = make()
    found = take(shared, 3)
    shared.save(str(tmp_path / "shared"))
    found += take(shared, 3)
    assert graphs == [3]
    monkeypatch.setattr(batches, "_share_graph", lambda *_: False)
    separate = make()
    assert_equal_batches(found[:3], take(separate, 3))
    separate.save(str(tmp_path / "separate"))
    assert_equal_batches(found[3:], take(separate, 3))
    separate.restore(str(tmp_path / "shared"))
    assert_equal_batches(found[3:], take(separate, 3))
    monkeypatch.undo()
    if order == "parts":
        monkeypatch.setattr(sources, "full_shuffle", lambda: 0.0)
    shared = make()
    shared.restore(str(tmp_path / "separate"))
    assert_equal_batches(found[3:], take(shared, 3))
    read = {"shared": shared.counts(), "separate": separate.counts()}
    assert read["shared"].keys() == read["separate"].keys()


def test_shards_of_a_foreign_task_have_a_graph_each(graphs):
    feature = seqio.Feature(seqio.ByteVocabulary(), add_eos=False)
    source = seqio.FunctionDataSource(
        lambda split, shuffle_files, seed=None: tf.data.Dataset.range(40).map(
            lambda x: {"inputs": tf.cast(x[None], tf.int32) + 1, "targets": tf.ones([1], tf.int32)}
        ),
        ["train"],
    )
    name = "foreign_to_shared_graphs"
    if name not in seqio.TaskRegistry.names():
        seqio.TaskRegistry.add(
            name, source, preprocessors=[], output_features={"inputs": feature, "targets": feature}
        )
    cfg = DatasetConfig(name, {"inputs": 4, "targets": 4}, "train", 4, False, 0, pack=False)
    next(batches.TrainStream(cfg, seqio.EncDecFeatureConverter, (0, 4), seed=1, shards=4))
    assert graphs == []
