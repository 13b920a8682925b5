"""Masked examples of real text: new masks each epoch, exact resume, caches, refusals."""

import dataclasses
import itertools

import numpy as np
import pytest
import seqio
import tensorflow as tf

import gin
from fakes import cache_jobs, tokenizer_files
from fakes.objectives import near
from fakes.refuses import refuses
from tasks import corpora, romanian, vocabularies
from tasks.cache import cached, plan
from tasks.cache.plan import CacheJob
from tasks.corpus.source import CorpusSource
from tasks.objectives import masked_lm, registry
from tasks.objectives.masked_lm import MaskedLM

LENGTHS = {"inputs": 64, "targets": 64}
WORDPIECE = vocabularies.tokenizer(tokenizer_files.WORDPIECE)
TEXT = "Ana are mere. Are și pere!\nDar nu are nuci.\n\nMâine va avea."


@pytest.fixture
def add():
    """Registers tasks for the time of a test."""
    names = []

    def register(objective, source=romanian.RO_MINI, vocabulary=WORDPIECE):
        name = f"masked_{len(names)}"
        names.append(name)
        return corpora.add(name, source, vocabulary, objective, cedilla=True)

    yield register
    for name in names:
        seqio.TaskRegistry.remove(name)


def examples(task, split="validation", lengths=LENGTHS, **settings):
    settings = {"shuffle": False, "seed": 3, **settings}
    return task.get_dataset(lengths, split, **settings).as_numpy_iterator()


def joined(found, name):
    return np.concatenate([example[name] for example in found])


def share(found):
    """Predicted and ordinary tokens of examples."""
    ordinary = ~np.isin(joined(found, "targets"), WORDPIECE.special_ids)
    return int(joined(found, "loss_weights")[ordinary].sum()), int(ordinary.sum())


def test_all_text_of_the_corpus_is_there_in_order_and_only_hidden_tokens_differ(add):
    plain = add(MaskedLM())
    found = list(examples(plain))
    text = " ".join(WORDPIECE.decode(example["targets"][1:-1]) for example in found)
    documents = plain.source.get_dataset("validation", shuffle=False).as_numpy_iterator()
    wanted = " ".join(WORDPIECE.decode(WORDPIECE.encode(x["text"].decode())) for x in documents)
    cut = text.replace("##", "")  # where a long sentence is cut within a word
    assert "".join(cut.split()) == "".join(wanted.split())
    for example in found:
        assert {key: value.dtype for key, value in example.items()} == dict.fromkeys(
            ("inputs", "targets", "loss_weights"), np.int32
        )
        shown = example["loss_weights"] == 0
        np.testing.assert_array_equal(example["inputs"][shown], example["targets"][shown])
        assert not example["loss_weights"][np.isin(example["targets"], (2, 3))].any()
    assert near(*share(found), 0.15)


@pytest.mark.parametrize(
    ("sentences", "wanted"),
    [
        ("split", ["Ana are mere.", "Are și pere!", "Dar nu are nuci.", "Mâine va avea."]),
        ("lines", ["Ana are mere. Are și pere!", "Dar nu are nuci.", "Mâine va avea."]),
    ],
)
def test_sentences_keep_their_borders(tmp_path, add, sentences, wanted):
    (tmp_path / "train.txt").write_text(TEXT)
    source = CorpusSource(str(tmp_path), splits=["train"], documents="paragraphs")
    # No two of them fit together.
    length = 2 + max(len(WORDPIECE.encode(text)) for text in wanted)
    lengths = {"inputs": length, "targets": length}
    found = examples(add(MaskedLM(sentences=sentences), source), "train", lengths)
    spelled = [WORDPIECE.decode(example["targets"]) for example in found]
    assert spelled == [f"[CLS] {text} [SEP]" for text in wanted]
    free = list(examples(add(MaskedLM(sentences="none"), source), "train", lengths))
    assert len(free[0]["targets"]) == length


def test_sentences_begin_words_of_byte_level_bpe(tmp_path):
    vocabulary = vocabularies.tokenizer(tokenizer_files.byte_bpe(tmp_path))
    dataset = tf.data.Dataset.from_tensors({"text": TEXT})
    feature = {"targets": seqio.Feature(vocabulary)}
    (found,) = MaskedLM().tokenize(dataset, feature).as_numpy_iterator()
    assert vocabulary.decode(found["targets"]) == " ".join(TEXT.split())
    ends = np.cumsum(found["sentences"])
    assert len(ends) == 4
    assert ends[-1] == len(found["targets"])
    assert vocabulary.word_starts()[found["targets"][ends[:-1]]].all()


def test_pairs_have_types_and_labels():
    task = seqio.TaskRegistry.get("ro_mini_bert")
    found = list(examples(task, "train", num_epochs=3))
    labels = joined(found, "next_sentence_label")
    assert 0.5 < labels.mean() < 0.7  # a last sentence alone has no continuation
    short = sum(len(example["inputs"]) < 40 for example in found)
    assert short > 0.02 * len(found)
    for example in found:
        ids, types = example["targets"], example["type_ids"]
        assert len(ids) <= 64
        (ends,) = np.nonzero(ids == WORDPIECE.sep_id)
        assert len(ends) == 2
        assert ids[0] == WORDPIECE.cls_id
        assert ends[1] == len(ids) - 1
        np.testing.assert_array_equal(types, np.arange(len(ids)) > ends[0])
        assert example["next_sentence_label"].shape == (1,)
        assert example["next_sentence_label"].dtype == np.int32
    assert near(*share(found), 0.15)


def test_a_seed_decides_everything_and_each_epoch_has_new_masks(add):
    task = add(MaskedLM())
    first, again, other = (list(examples(task, seed=seed)) for seed in (3, 3, 4))
    shards = [examples(task, "train", shard_info=seqio.ShardInfo(i, 4)) for i in (0, 1)]
    places = [[e["loss_weights"][:20].tolist() for e in itertools.islice(s, 20)] for s in shards]
    assert places[0] != places[1]
    np.testing.assert_array_equal(joined(first, "inputs"), joined(again, "inputs"))
    np.testing.assert_array_equal(joined(first, "targets"), joined(other, "targets"))
    assert (joined(first, "inputs") != joined(other, "inputs")).any()
    twice = list(examples(task, num_epochs=2))
    n = len(first)
    np.testing.assert_array_equal(joined(twice[:n], "targets"), joined(twice[n:], "targets"))
    masks = joined(twice[:n], "loss_weights"), joined(twice[n:], "loss_weights")
    both = int((masks[0] & masks[1]).sum())
    assert near(both, int(masks[0].sum()), 0.15, 6)  # as by chance


@pytest.mark.parametrize("name", ["ro_mini_masked_lm", "ro_mini_bert"])
def test_a_position_is_resumed_exactly(name, tmp_path):
    settings = {"shuffle": True, "seed": 5, "num_epochs": None}
    dataset = seqio.TaskRegistry.get(name).get_dataset(LENGTHS, "train", **settings)
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    dataset = dataset.with_options(options)
    iterator = iter(dataset)
    for _ in range(1_000):  # into the second epoch
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "position"))
    wanted = [next(iterator) for _ in range(100)]
    resumed = iter(dataset)
    tf.train.Checkpoint(iterator=resumed).read(path).assert_consumed()
    for want in wanted:
        found = next(resumed)
        assert found.keys() == want.keys()
        for key in want:
            np.testing.assert_array_equal(found[key], want[key])


@pytest.fixture
def no_global_caches():
    with cache_jobs.global_caches([]):
        yield


def cache_of(out, **settings) -> CacheJob:
    lengths = (("inputs", 64), ("targets", 64))
    return dataclasses.replace(
        cache_jobs.job(out, **settings), task="ro_mini_bert", lengths=lengths, epochs=2
    )


@pytest.mark.usefixtures("no_global_caches")
def test_a_cache_has_new_masks_each_epoch(tmp_path):
    made = cache_of(tmp_path)
    counts = cache_jobs.make(made)["validation"]
    assert counts["epochs"][0] > 50
    with gin.unlock_config():
        gin.bind_parameter("tasks.cache.folders.paths", [made.out])
    try:
        task = cached.add_pregenerated("ro_mini_bert", LENGTHS)
        found = list(examples(task, use_cached=True))
    finally:
        gin.clear_config()
        seqio.TaskRegistry.remove("ro_mini_bert_i64_t64")
        plan.task_of.cache_clear()
    assert len(found) == counts["examples"]
    assert near(*share(found), 0.15)
    assert found[0].keys() == {
        *("inputs", "targets", "loss_weights", "type_ids", "next_sentence_label")
    }
    assert len({example["inputs"].tobytes() for example in found}) > 0.95 * len(found)


@pytest.mark.usefixtures("no_global_caches")
def test_cached_tokens_are_masked_when_they_are_read(tmp_path):
    made = dataclasses.replace(cache_jobs.job(tmp_path), task="ro_mini_masked_lm")
    cache_jobs.make(made)
    with gin.unlock_config():
        gin.bind_parameter("tasks.cache.folders.paths", [made.out])
    try:
        task = seqio.TaskRegistry.get("ro_mini_masked_lm")
        from_cache = list(examples(task, use_cached=True))
    finally:
        gin.clear_config()
    sequences = lambda found: sorted(example["targets"].tobytes() for example in found)
    assert sequences(from_cache) == sequences(examples(task))
    assert near(*share(from_cache), 0.15)


@pytest.mark.parametrize(
    ("objective", "lengths", "value", "to_set"),
    [
        (MaskedLM(), {"inputs": 64, "targets": 32}, {"inputs": 64, "targets": 32}, "both to 64"),
        (MaskedLM(), {"inputs": 2, "targets": 2}, 2, "at least 3"),
        (masked_lm.BERT, {"inputs": 4, "targets": 4}, 4, "at least 5"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(add, objective, lengths, value, to_set):
    with refuses(value=value) as refusal:
        examples(add(objective), lengths=lengths)
    assert to_set in refusal.value.to_set


def test_vocabularies_of_another_kind_are_refused_in_one_sentence(add, tmp_path):
    bare = tokenizer_files.blanks_bpe(tmp_path, ("<pad>", "<bos>", "<eos>", "<unk>"))
    for vocabulary in (bare, vocabularies.byt5()):
        with refuses("the vocabulary") as refusal:
            examples(add(MaskedLM(), vocabulary=vocabulary))
        assert "mask token" in refusal.value.why
    for objective in registry.OBJECTIVES.keys() - {"masked_lm", "bert", "modernbert"}:
        with refuses("the vocabulary") as refusal:
            examples(add(objective))
        assert "objective='masked_lm'" in refusal.value.to_set
