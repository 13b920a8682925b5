"""A cache holds each example once, the same bytes whoever makes it; seqio and training read it."""

import collections
import itertools
import json
import pathlib
import random

import numpy as np
import pytest
import seqio
import tensorflow as tf

import gin
from fakes.cache_jobs import LENGTHS, files, finished, global_caches, job, make
from fakes.refuses import refuses
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.stream import TrainStream
from tasks import romanian, vocabularies
from tasks.cache import build, cached, plan
from tasks.cache.plan import CacheJob

DOCUMENTS = len(
    pathlib.Path(romanian.RO_MINI.list_shards("validation")[0]).read_text().splitlines()
)


def records(made: CacheJob, shards) -> list[bytes]:
    paths = sorted(map(str, pathlib.Path(made.folder).glob("validation.tfrecord-*")))
    paths = [paths[shard] for shard in shards]
    return [record.numpy() for record in tf.data.TFRecordDataset(paths)]


@pytest.fixture(scope="module")
def two_epochs(tmp_path_factory):
    made = finished(tmp_path_factory.mktemp("two"))
    return made, make(made)


@pytest.fixture(scope="module")
def of_tokens(tmp_path_factory):
    made = job(tmp_path_factory.mktemp("tokens"))
    return made, make(made)


@pytest.fixture
def reading(two_epochs, of_tokens):
    """Both caches are found, as a gin file would have it."""
    paths = [two_epochs[0].out, of_tokens[0].out]
    with gin.unlock_config():
        gin.bind_parameter("tasks.cache.folders.paths", paths)
    with global_caches([]):
        yield
    gin.clear_config()


def bag(examples, feature="targets") -> collections.Counter:
    """All tokens of some parsed or raw examples that are neither sentinels nor EOS."""
    vocabulary = seqio.TaskRegistry.get("ro_mini_span_corruption").output_features["inputs"]
    lowest = min(vocabularies.sentinels(vocabulary.vocabulary))
    tokens = collections.Counter()
    for raw in examples:
        features = tf.train.Example.FromString(raw).features.feature
        for values in features.values():
            tokens.update(t for t in values.int64_list.value if 1 < t < lowest)
    return tokens


def test_any_order_and_interruptions_give_the_same_bytes(two_epochs, tmp_path, monkeypatch):
    made = finished(tmp_path)
    assert build.start(made)
    parts, shards = plan.parts_of(made), plan.shards_of(made)
    assert len(parts) == 2 * 2
    assert len(shards) == 2 * 4
    with monkeypatch.context() as patch:
        count = itertools.count()
        add = build.ExampleStats.add
        broken = lambda self, x: add(self, x) if next(count) < 50 else 1 / 0
        patch.setattr(build.ExampleStats, "add", broken)
        for part in parts[::-1]:  # the first is written, the others break off
            try:
                build.write_part(made, part)
            except ZeroDivisionError:
                continue
    make(made, lambda items: random.Random(1).sample(items, len(items)))
    assert files(made) == files(two_epochs[0])


def test_each_epoch_holds_all_tokens_hidden_elsewhere(two_epochs, of_tokens):
    made, stats = two_epochs
    text = bag(records(of_tokens[0], range(4)))
    epochs = [records(made, range(4)), records(made, range(4, 8))]
    for examples in epochs:
        missing = text - bag(examples)
        assert sum(missing.values()) <= 2, "a part may leave out a single last token"
        assert not bag(examples) - text
    assert not set(epochs[0]) & set(epochs[1])
    assert stats["validation"]["epochs"] == [len(examples) for examples in epochs]
    assert stats["validation"]["records"]["read"] == 2 * DOCUMENTS


def test_seqio_reads_the_examples_counted(two_epochs, reading):
    made, stats = two_epochs
    task = cached.add_pregenerated("ro_mini_span_corruption", LENGTHS)
    assert task.name == "ro_mini_span_corruption_i64_t14"
    assert task.get_cached_stats("validation") == stats["validation"]
    dataset = task.get_dataset(LENGTHS, "validation", use_cached=True, shuffle=False)
    examples = list(dataset.as_numpy_iterator())
    assert len(examples) == stats["validation"]["examples"]
    for key, length in LENGTHS.items():
        assert {e[key].dtype for e in examples} == {np.dtype(np.int32)}
        assert max(len(e[key]) for e in examples) == length
        assert all(e[key][-1] == 1 for e in examples)
        tokens = sum(len(e[key]) - 1 for e in examples)
        assert stats["validation"][f"{key}_tokens"] == tokens
    info = json.loads(pathlib.Path(made.folder, "info.validation.json").read_text())
    assert info["num_shards"] == 8
    assert info["seqio_version"] == seqio.__version__


def test_seqio_deals_finished_examples_to_hosts_always_alike(two_epochs, reading):
    hosts = 4
    task = cached.add_pregenerated("ro_mini_span_corruption", LENGTHS)

    def share(index, count):
        dataset = seqio.get_dataset(
            task.name,
            LENGTHS,
            seqio.EncDecFeatureConverter(pack=False),
            "validation",
            shuffle=False,
            shard_info=seqio.ShardInfo(index, count),
            use_cached=True,
            verbose=False,
        )
        sides = ("encoder_input_tokens", "decoder_target_tokens")
        return [b"".join(e[k].tobytes() for k in sides) for e in dataset.as_numpy_iterator()]

    shares = [share(i, hosts) for i in range(hosts)]
    assert [share(i, hosts) for i in range(hosts)] == shares
    assert min(map(len, shares)) > 0
    assert sorted(x for found in shares for x in found) == sorted(share(0, 1))
    assert sum(map(len, shares)) == two_epochs[1]["validation"]["examples"]


def test_a_cache_of_tokens_is_corrupted_differently_in_each_epoch(reading):
    task = seqio.TaskRegistry.get("ro_mini_span_corruption")
    kwargs = {"use_cached": True, "shuffle": False, "seed": 0}
    once = list(task.get_dataset(LENGTHS, "validation", **kwargs).as_numpy_iterator())
    twice = task.get_dataset(LENGTHS, "validation", num_epochs=2, **kwargs)
    assert abs(len(list(twice.as_numpy_iterator())) - 2 * len(once)) <= 1
    first, second = (e["inputs"] for e in (once[0], list(twice.as_numpy_iterator())[len(once)]))
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize("pregenerated", [False, True])
def test_training_reads_it_and_resumes_exactly(pregenerated, reading, tmp_path):
    name = "ro_mini_span_corruption"
    if pregenerated:
        name = cached.add_pregenerated(name, LENGTHS).name
    cfg = DatasetConfig(
        name, LENGTHS, "validation", batch_size=2, shuffle=True, seed=0, use_cached=True, pack=True
    )
    stream = lambda: TrainStream(cfg, seqio.EncDecFeatureConverter, (0, 2), seed=0)
    undisturbed = stream()
    next(undisturbed)
    undisturbed.save(str(tmp_path))
    expected = [next(undisturbed) for _ in range(30)]  # more than the epoch's rest
    assert expected[0]["encoder_input_tokens"].shape == (2, 64)
    again = stream()
    again.restore(str(tmp_path))
    for batch, other in zip(expected, (next(again) for _ in range(30)), strict=True):
        for key in batch:
            np.testing.assert_array_equal(batch[key], other[key])


def test_a_pipeline_that_refuses_is_found_before_anything_is_made(tmp_path):
    with refuses(where="task ro_mini_span_corruption"):
        build.check_pipelines(job(tmp_path, lengths=(("inputs", 64), ("targets", 9))))


def test_other_lengths_than_the_caches_are_refused(reading):
    task = cached.add_pregenerated("ro_mini_span_corruption", LENGTHS)
    lengths = {"inputs": 32, "targets": 14}
    with refuses("TASK_FEATURE_LENGTHS", lengths):
        task.get_dataset(lengths, "validation", use_cached=True)
