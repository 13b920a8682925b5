"""A part of a split is read as seqio and TFDS write it, and costs no more than its end."""

import dataclasses
import json

import pytest
import seqio

from fakes import toy
from fakes.refuses import refuses
from t5x import infer
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.corpora import Corpora
from tasks.corpus import slices
from tasks.corpus import source as sources
from tasks.corpus.source import CorpusSource
from tasks.rows import Rows

TEXTS = [f"document {i}" for i in range(40)]


@pytest.fixture
def corpus(tmp_path):
    """40 documents in two files, an empty record between each two."""
    for name, texts in (("0", TEXTS[:15]), ("1", TEXTS[15:])):
        lines = "".join(json.dumps({"text": t}) + "\n" + '{"text": ""}\n' for t in texts)
        (tmp_path / f"train-{name}.jsonl").write_text(lines)
    return CorpusSource(files={"train": f"{tmp_path}/train-*.jsonl"}, held_out={})


def texts(source, split, **settings):
    dataset = source.get_dataset(split, **{"shuffle": False, **settings})
    return [example["text"].decode() for example in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ("[:5]", TEXTS[:5]),
        ("[5:]", TEXTS[5:]),
        ("[13:17]", TEXTS[13:17]),
        ("[10%:20%]", TEXTS[4:8]),
        ("[50%:]", TEXTS[20:]),
        ("[-3:]", TEXTS[-3:]),
        ("[:-10%]", TEXTS[:36]),
        ("[38:90]", TEXTS[38:]),
        ("[7:7]", []),
        ("[:]", TEXTS),
    ],
)
def test_a_slice_has_the_documents_of_its_numbers(corpus, part, found):
    assert texts(corpus, f"train{part}") == found


def test_shards_and_a_shuffle_share_its_documents(corpus):
    shards = [texts(corpus, "train[:9]", shard_info=seqio.ShardInfo(i, 2)) for i in range(2)]
    assert shards == [TEXTS[:9:2], TEXTS[1:9:2]]
    mixed = texts(corpus, "train[10:30]", shuffle=True, seed=1)
    assert sorted(mixed) == sorted(TEXTS[10:30]) != mixed


def test_a_slice_is_among_the_splits_and_other_names_are_not(corpus):
    assert "train[:500]" in corpus.splits
    assert list(corpus.splits) == ["train"]
    for name in ("test[:500]", "train[500]", "train[a:b]", "train[1%%:]", "train+train[:1]"):
        assert name not in corpus.splits
    assert corpus.identity("train[:3]")["slice"] == ":3"
    assert "slice" not in corpus.identity("train")
    assert corpus.peek("train[:3]") == TEXTS[:1]
    assert corpus.record_counts("train[:3]") == corpus.record_counts("train")


@pytest.mark.parametrize("part", ["train[:50%]", "train[-20:]", "train[:20]"])
def test_the_records_of_a_slice_are_counted_once(corpus, part):
    shards = [texts(corpus, part, shard_info=seqio.ShardInfo(i, 2)) for i in range(2)]
    assert sum(map(len, shards)) == 20
    one = corpus.record_counts(part)
    corpus.reset_counter()
    assert len(texts(corpus, part)) == 20
    assert corpus.record_counts(part) == one
    assert one["read"] <= 2 * len(TEXTS)


def test_a_slice_is_refused_for_training_before_anything_is_read(corpus):
    feature = seqio.Feature(seqio.ByteVocabulary())
    task = seqio.Task("trained", corpus, output_features={"inputs": feature}, preprocessors=[])
    cfg = DatasetConfig(task, {"inputs": 8}, "train[:5]", 2, shuffle=True, seed=0)
    with refuses(f"split 'train[:5]' of corpus {corpus.name!r}"):
        Corpora(cfg).check()
    Corpora(dataclasses.replace(cfg, shuffle=False)).check()
    Corpora(dataclasses.replace(cfg, split="train")).check()


def test_a_stream_is_sliced_by_numbers_and_its_percentages_are_refused(corpus, monkeypatch):
    monkeypatch.setattr(sources, "full_shuffle", lambda: 0.0)
    assert texts(corpus, "train[13:17]") == TEXTS[13:17]
    with refuses("train[10%:20%]"):
        corpus.get_dataset("train[10%:20%]")


def test_a_slice_of_rows_is_of_the_held_out_documents(tmp_path, corpus):
    source = CorpusSource(files={"train": f"{tmp_path}/train-*.jsonl"}, held_out={"test": 0.5})
    train, test = texts(source, "train"), texts(source, "test")
    assert sorted(train + test) == sorted(TEXTS)
    assert texts(source, "test[2:5]") == test[2:5]
    assert texts(source, "test[50%:]") == test[round(len(test) / 2) :]


def test_inference_and_evaluation_take_a_slice(tmp_path):
    lines = [json.dumps({"inputs": text, "targets": "da"}) for text in TEXTS]
    (tmp_path / "test.jsonl").write_text("\n".join(lines))
    columns = {"inputs": "inputs", "targets": "targets"}
    feature = seqio.Feature(seqio.ByteVocabulary())
    task = seqio.Task(
        "sliced",
        source=Rows(files={"test": f"{tmp_path}/test.jsonl"}, columns=columns),
        preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
        output_features={"inputs": feature, "targets": feature},
        metric_fns=[toy.same],
    )
    lengths = {"inputs": 32, "targets": 32}
    cfg = DatasetConfig(task, lengths, "test[2:5]", 2, shuffle=False, seed=0)
    assert cfg.tasks_with_split == [task]
    Corpora(cfg).check()
    converter = seqio.EncDecFeatureConverter(pack=False)
    pairs = infer.examples_of(task, cfg, converter, seqio.ShardInfo(0, 1))
    shown = [each["inputs_pretokenized"].decode() for each, _ in pairs.as_numpy_iterator()]
    assert shown == TEXTS[2:5]
    seqio.TaskRegistry.add_provider("sliced", task)
    try:
        measured = seqio.Evaluator("sliced", converter, "test[2:5]", sequence_length=lengths)
    finally:
        seqio.TaskRegistry.remove("sliced")
    assert measured.cached_task_datasets["sliced"].cardinality() == 3
    with refuses("DatasetConfig.split", "dev[:5]"):
        Corpora(dataclasses.replace(cfg, split="dev[:5]")).check()


def test_bounds_count_only_where_they_must():
    def never():
        raise AssertionError

    assert slices.parse("a[3:]").bounds(never) == (3, None)
    assert slices.parse("a[5:3]").bounds(never) == (5, 5)
    assert slices.parse("a[-50:200%]").bounds(lambda: 10) == (0, 20)
    assert slices.parse("a") is None
