"""Pairs become ids that fit their lengths, and truncation is counted."""

import json

import pytest
import seqio
import tensorflow as tf

from fakes.refuses import refuses
from tasks import pairs, vocabularies
from tasks.cache import build
from tasks.cache.plan import CacheJob, parts_of, shards_of
from tasks.corpus.source import CorpusSource
from tasks.rows import Rows

LENGTHS = {"inputs": 12, "targets": 6}
VOCABULARY = vocabularies.byt5()


def task_of(name, tmp_path, texts, **settings):
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(json.dumps({"inputs": a, "targets": b}) for a, b in texts))
    columns = {"inputs": "inputs", "targets": "targets"}
    source = Rows(files={"train": str(path)}, columns=columns, held_out={})
    seqio.TaskRegistry.remove(name)
    return pairs.add(name, source, VOCABULARY, **settings)


def read(task, lengths=LENGTHS):
    dataset = task.get_dataset(lengths, "train", shuffle=False, trim_output_features=False)
    return list(dataset.as_numpy_iterator())


def test_a_pair_gets_its_prefix_and_ends_with_eos(tmp_path):
    (example,) = read(task_of("pair_plain", tmp_path, [(" ab ", "c")], prefix="q: "))
    assert VOCABULARY.decode(example["inputs"].tolist()) == "q: ab"
    assert [example[side][-1] for side in ("inputs", "targets")] == [1, 1]
    assert example["targets_pretokenized"] == b"c"


def test_long_texts_are_truncated_and_counted(tmp_path):
    texts = [("a" * 11, "b" * 5), ("a" * 12, "b" * 6), ("a" * 40, "c")]
    task = task_of("pair_long", tmp_path, texts)
    rows = read(task)
    assert [len(row["inputs"]) for row in rows] == [12, 12, 12]
    assert [row["inputs"][-1] for row in rows] == [1, 1, 1]
    assert [row["targets"][-1] == 1 for row in rows] == [True, False, True]  # no false end
    assert [len(row["targets"]) for row in rows] == [6, 6, 2]
    assert rows[1]["targets_pretokenized"] == b"b" * 6  # metrics see the full text
    found = task.source.record_counts()
    assert (found["cut_inputs"], found["cut_targets"]) == (2, 1)
    assert task.source.record_counts("train")["examples"] == 3
    assert task.source.record_counts("validation")["cut_inputs"] == 0  # each split has its own
    assert task.prefix == ""


@pytest.mark.parametrize(
    ("lengths", "side", "held"),
    [
        ({"inputs": 4, "targets": 9}, "inputs", "'q: '"),
        ({"inputs": 9, "targets": 4}, "targets", "'spam'"),
    ],
)
def test_lengths_without_room_for_a_prefix_or_a_label_are_refused(tmp_path, lengths, side, held):
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"inputs": "ab", "targets": "1"}))
    columns = {"inputs": "inputs", "targets": "targets"}
    names = {"targets": {"0": "ham", "1": "spam"}}
    source = Rows(files={"train": str(path)}, columns=columns, labels=names, held_out={})
    seqio.TaskRegistry.remove("pair_short")
    task = pairs.add("pair_short", source, VOCABULARY, prefix="q: ")
    with refuses(f"TASK_FEATURE_LENGTHS[{side!r}]", 4) as refusal:
        read(task, lengths)
    assert held in refusal.value.why
    assert "5" in refusal.value.to_set
    read(task, {"inputs": 5, "targets": 5})


@pytest.mark.parametrize(
    "source",
    [
        CorpusSource(files={"train": "a.jsonl"}),
        Rows(files={"train": "a.jsonl"}, columns={"source": "a", "target": "b"}),
        Rows(files={"train": "a.jsonl"}, columns={"inputs": "a"}, group="targets"),
    ],
    ids=["text", "other names", "no targets"],
)
def test_a_source_of_no_pairs_is_refused_before_it_is_read(source):
    with refuses("columns", where="task pair_refused"):
        pairs.add("pair_refused", source, VOCABULARY)
    assert "pair_refused" not in seqio.TaskRegistry.names()


def test_evaluation_without_lengths_uses_the_tasks_own(tmp_path):
    task = task_of("pair_none", tmp_path, [("a" * 40, "b" * 40)], lengths=LENGTHS)
    (row,) = read(task, None)
    assert (len(row["inputs"]), len(row["targets"])) == (12, 6)


@pytest.mark.parametrize("most", [4, 5, 511])
def test_both_ends_are_kept_with_a_separator_between(most):
    ids = tf.range(1000, 2000)
    found = pairs.keep_both_ends(ids, most, VOCABULARY).numpy()
    first = most // 2
    separator = vocabularies.sentinels(VOCABULARY)[0]
    assert found.tolist() == [*range(1000, 1000 + first), separator] + list(
        range(2000 - (most - 1 - first), 2000)
    )


def test_positions_of_a_task_that_counts_can_be_saved(tmp_path):
    task = task_of("pair_saved", tmp_path, [(f"{i} " + "a" * 20, "b") for i in range(40)])
    make = lambda: iter(task.get_dataset(LENGTHS, "train", shuffle=True, seed=1))
    iterator = make()
    for _ in range(10):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "position"))
    rest = [row["inputs"].numpy().tolist() for row in iterator]
    other = make()
    tf.train.Checkpoint(iterator=other).read(path)
    assert [row["inputs"].numpy().tolist() for row in other] == rest
    assert rest


def test_its_tokens_can_be_cached_ahead_of_time(tmp_path):
    task = task_of("pair_cached", tmp_path, [(f"text {i}", f"t {i}") for i in range(30)])
    job = CacheJob(
        "pair_cached", str(tmp_path / "cache"), splits=("train",), modules=("tasks.pairs",)
    )
    build.check_pipelines(job)
    for part in parts_of(job):
        build.write_part(job, part)
    for shard in shards_of(job):
        build.write_shard(job, shard)
    build.finish(job)
    seqio.add_global_cache_dirs([job.out])
    rows = task.get_dataset(LENGTHS, "train", use_cached=True, shuffle=False)
    found = {row["targets_pretokenized"].decode() for row in rows.as_numpy_iterator()}
    assert found == {f"t {i}" for i in range(30)}
