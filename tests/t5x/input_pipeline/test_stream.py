"""The stream: the same batches whatever the hosts, and the same after a kill as without."""

import collections
import contextlib
import json

import numpy as np
import pytest
import seqio

from common.errors import UserError
from fakes import toy
from fakes.arrays import assert_equal_batches
from fakes.refuses import refuses
from fakes.resumable import Corpus
from t5x.input_pipeline import position
from t5x.input_pipeline.stream import TrainStream, eval_sets, shard_count

CONVERTER = seqio.EncDecFeatureConverter


def stream(rows=None, seed=0, shards=None, **settings):
    cfg = toy.data(**settings)
    return TrainStream(cfg, CONVERTER, rows or (0, cfg.batch_size), seed, shards)


def take(iterator, count):
    return [next(iterator) for _ in range(count)]


@pytest.fixture(scope="module")
def global_batches():
    """The stream of a single host: 4 batches of 8 unpacked examples."""
    return take(stream(pack=False), 4)


def letters(batch):
    return [toy.VOCABULARY.decode(row.tolist()) for row in batch["encoder_input_tokens"]]


def rows_of(host, hosts, batch_size=128):
    size = batch_size // hosts
    return host * size, (host + 1) * size


def assert_host_rows(found, wanted, rows):
    assert_equal_batches(
        found, [{k: v[slice(*rows)] for k, v in batch.items()} for batch in wanted]
    )


@pytest.mark.parametrize("rows", [(4, 8), (2, 4), (7, 8)])
def test_a_host_gets_its_rows_of_the_global_batch(global_batches, rows):
    assert_host_rows(take(stream(rows, pack=False), 4), global_batches, rows)


def test_an_epoch_in_order_holds_every_record_once():
    epoch = take(stream(pack=False, shuffle=False, batch_size=6), 16)
    seen = collections.Counter(text for batch in epoch for text in letters(batch))
    assert seen == collections.Counter(toy.texts("train"))


def test_the_seed_decides_the_order():
    one, again, other = (take(stream(pack=False, batch_size=6, seed=s), 2) for s in (0, 0, 1))
    assert_equal_batches(again, one)
    assert list(map(letters, other)) != list(map(letters, one))


def test_a_batch_has_the_shapes_it_announces():
    packed = stream(batch_size=6)
    batch = next(packed)
    of = lambda arrays: {name: (x.shape, np.dtype(x.dtype)) for name, x in arrays.items()}
    assert of(batch) == of(packed.global_batch)
    assert {(x.shape, x.dtype) for x in batch.values()} == {((6, 16), np.dtype("int32"))}
    assert batch["encoder_segment_ids"].max() > 1  # several examples share a row


def test_after_a_kill_the_stream_resumes_exactly_twice(tmp_path):
    undisturbed = stream(batch_size=6)
    wanted = take(undisturbed, 3)
    undisturbed.save(str(tmp_path / "a"))
    wanted += take(undisturbed, 22)  # into the second epoch

    second = stream(batch_size=6)
    second.restore(str(tmp_path / "a"))
    assert_equal_batches(take(second, 2), wanted[3:5])
    second.save(str(tmp_path / "b"))
    take(second, 1)

    third = stream(batch_size=6)
    take(third, 1)  # where it stood before does not matter
    third.restore(str(tmp_path / "b"))
    assert_equal_batches(take(third, 20), wanted[5:25])


@pytest.mark.parametrize("hosts", [2, 128])
def test_a_position_of_one_host_is_resumed_by_any_number(tmp_path, hosts):
    one = stream(batch_size=128, pack=False)
    take(one, 1)
    one.save(str(tmp_path))
    wanted = take(one, 2)
    for host in (0, hosts // 2, hosts - 1):
        part = stream(rows_of(host, hosts), batch_size=128, pack=False)
        part.restore(str(tmp_path))
        assert_host_rows(take(part, 2), wanted, rows_of(host, hosts))


@pytest.mark.slow
def test_runs_of_1_to_128_hosts_take_over_from_each_other(tmp_path):
    """Every host of every number of hosts, one after the other; the run begins on 16."""
    undisturbed = stream(batch_size=128, shards=16)
    before = None
    for hosts in (16, 128, 8, 32, 1, 12, 16):
        batch_size = 96 if hosts == 12 else 128
        if hosts == 12:  # 16 shards on 12 hosts: a host has rows of two, and may own one or two
            undisturbed = stream(batch_size=96)
            undisturbed.restore(before)
        elif undisturbed.cfg.batch_size == 96:
            undisturbed = stream(batch_size=128)
            undisturbed.restore(before)
        wanted, after = take(undisturbed, 3), str(tmp_path / f"{len(list(tmp_path.iterdir()))}")
        for host in range(hosts):
            rows = rows_of(host, hosts, batch_size)
            part = stream(rows, batch_size=batch_size)
            if before:
                part.restore(before)
            assert_host_rows(take(part, 3), wanted, rows)
            part.save(after)
        before = after


def test_a_shard_that_hosts_share_is_saved_and_counted_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr(toy.data().provider.source, "counts", {"read": 96, "epochs": 2})
    for host in range(4):
        part = stream(rows_of(host, 4, 8), batch_size=8, shards=2)
        take(part, 1)
        part.save(str(tmp_path))
        saved = len(list(tmp_path.glob("*.index")))
        assert saved == host // 2 + 1
        counts = part.counts()[toy.TASK]
        assert (counts["read"], counts["epochs"]) == (0 if host % 2 else 96, 2)
    assert (tmp_path / "stream.json").exists()


@pytest.mark.parametrize("pack", [True, False])
def test_a_larger_or_smaller_batch_continues_where_the_last_one_ended(tmp_path, pack):
    """The rows of each shard follow each other, whatever number of them a batch takes."""
    undisturbed = stream(batch_size=6, pack=pack)
    rows = [batch["encoder_input_tokens"].reshape(2, 3, -1) for batch in take(undisturbed, 8)]
    wanted = np.concatenate(rows, 1)  # by shard
    first = stream(batch_size=6, pack=pack)
    take(first, 2)
    first.save(str(tmp_path / "six"))
    second = stream(batch_size=10, pack=pack)
    second.restore(str(tmp_path / "six"))
    taken = take(second, 2)
    found = np.concatenate([b["encoder_input_tokens"].reshape(2, 5, -1) for b in taken], 1)
    np.testing.assert_array_equal(found, wanted[:, 6:16])
    second.save(str(tmp_path / "ten"))
    third = stream(batch_size=4, pack=pack)
    third.restore(str(tmp_path / "ten"))
    found = next(third)["encoder_input_tokens"].reshape(2, 2, -1)
    np.testing.assert_array_equal(found, wanted[:, 16:18])


@pytest.mark.parametrize(
    ("saved", "other", "named"),
    [
        ({"batch_size": 10, "shards": 5}, {}, "5 virtual shards, .* multiple of 5"),
        # Rows of another kind would lose the examples that the position holds, or not fit.
        ({}, {"pack": False}, "pack = True"),
        ({}, {"task_feature_lengths": {"inputs": 24, "targets": 24}}, "TASK_FEATURE_LENGTHS"),
        ({}, {"shuffle": False}, "different pipeline than toy_copy"),
    ],
)
def test_a_position_that_does_not_fit_is_refused(tmp_path, saved, other, named):
    first = stream(**{"batch_size": 6, **saved})
    take(first, 1)
    first.save(str(tmp_path))
    with pytest.raises(ValueError, match=named):
        stream(**{"batch_size": 6, **other}).restore(str(tmp_path))


def test_a_folder_without_a_position_has_none(tmp_path):
    assert position.saved(str(tmp_path)) is None
    assert position.saved(None) is None
    stream(seed=5).save(str(tmp_path))
    assert position.saved(str(tmp_path))["seed"] == 5


def test_a_corpus_too_small_for_its_shards_is_named():
    pair = lambda split, shuffle_files, seed=None: toy.dataset(split).take(2)
    few = seqio.Task(
        "toy_few",
        source=seqio.FunctionDataSource(pair, ["train"]),
        preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
        output_features=toy.data().provider.output_features,
    )
    with pytest.raises(ValueError, match=r"toy_few .* shard 2 of 8"):
        next(stream(mixture_or_task_name=few, batch_size=8))


@pytest.mark.parametrize(
    ("batch", "hosts", "count"),
    [(128, 1, 8), (128, 8, 8), (128, 16, 16), (6, 1, 2), (6, 2, 2), (7, 1, 1), (12, 3, 12)],
)
def test_every_host_has_an_equal_number_of_shards(batch, hosts, count):
    assert shard_count(batch, hosts) == count
    assert batch % count == 0
    assert count % hosts == 0


def test_a_host_that_does_not_save_writes_nothing(tmp_path):
    part = stream((0, 8))
    part.saves = False
    part.save(str(tmp_path / "position"))
    assert not (tmp_path / "position").exists()


def test_evaluation_batches_are_the_same_every_time_and_of_one_pass():
    cfg = toy.data("validation", mixture_or_task_name=toy.MIXED)
    read = lambda rows, steps: eval_sets(cfg, CONVERTER, rows, steps)
    sets = read((0, 8), 6)
    assert set(sets) == {toy.TASK, toy.BARE}
    assert_equal_batches(read((0, 8), 6)[toy.TASK], sets[toy.TASK])
    half = [{k: v[4:8] for k, v in batch.items()} for batch in sets[toy.TASK]]
    assert_equal_batches(read((4, 8), 6)[toy.TASK], half)
    seen = collections.Counter(text for batch in sets[toy.TASK] for text in letters(batch))
    assert seen - collections.Counter({"": 4}) == collections.Counter(toy.texts("validation"))
    # A split of 20 is two batches of 8, and 4 rows filled up; fewer are wanted of a larger split.
    assert len(sets[toy.TASK]) == 3
    assert {len(rows) for batch in sets[toy.TASK] for rows in batch.values()} == {8}
    assert not any(rows[4:].any() for rows in sets[toy.TASK][-1].values())
    assert_equal_batches(read((0, 8), 2)[toy.TASK], sets[toy.TASK][:2])


@pytest.mark.parametrize(
    ("saved", "now", "is_refused"),
    [
        ({"files": 2}, {"files": 3}, True),
        ({"files": 2, "reads": {"documents": "lines"}}, {"files": 2, "reads": {}}, True),
        ({"files": 2}, {"files": 2, "reads": {}}, False),
    ],
)
def test_a_position_in_another_corpus_is_refused(tmp_path, saved, now, is_refused):
    stream(batch_size=6).save(str(tmp_path))
    about = json.loads((tmp_path / "stream.json").read_text())
    (tmp_path / "stream.json").write_text(json.dumps(about | {"corpora": {toy.TASK: saved}}))
    other = stream(batch_size=6)
    other.corpora.sources = {toy.TASK: Corpus(identity=now)}
    refusal = pytest.raises(UserError, match="corpus of toy_copy")
    with refusal if is_refused else contextlib.nullcontext():
        other.restore(str(tmp_path))


def test_batches_are_those_of_seqios_converter():
    """A stream of one shard gives the rows that seqio packs, in their order."""
    cfg = toy.data(batch_size=4)
    found = take(TrainStream(cfg, CONVERTER, (0, 4), 0, shards=1), 6)
    dataset = seqio.get_dataset(
        cfg.provider,
        cfg.task_feature_lengths,
        CONVERTER(pack=True),
        shuffle=True,
        seed=0,
        num_epochs=None,
        shard_info=seqio.ShardInfo(0, 1),
        batch_size=4,
        verbose=False,
    )
    assert_equal_batches(found, list(dataset.take(6).as_numpy_iterator()))


def test_another_converter_is_asked_for_its_rows(tmp_path):
    class Other(seqio.EncDecFeatureConverter):
        pass

    cfg = toy.data(batch_size=6)
    wanted = take(stream(batch_size=6), 4)
    other = TrainStream(cfg, Other, (0, 6), 0)
    assert_equal_batches(take(other, 2), wanted[:2])
    other.save(str(tmp_path))
    again = TrainStream(cfg, Other, (0, 6), 0)
    again.restore(str(tmp_path))
    assert_equal_batches(take(again, 2), wanted[2:])


def test_a_stream_that_ends_says_after_how_much(tmp_path):
    class Once(seqio.Task):
        def get_dataset(self, *args, num_epochs=None, **kwargs):
            return super().get_dataset(*args, num_epochs=1, **kwargs)

    task = toy.data().provider
    once = Once(
        "toy_once",
        source=task.source,
        preprocessors=task.preprocessors,
        output_features=task.output_features,
        shuffle_buffer_size=4,
    )
    ending, again = (stream(mixture_or_task_name=once, pack=False) for _ in range(2))
    take(ending, toy.SPLITS["train"] // 8)
    ending.save(str(tmp_path))
    with refuses("toy_once") as refusal:
        next(ending)
    again.restore(str(tmp_path))
    with refuses("toy_once") as later:
        next(again)
    assert str(toy.SPLITS["train"] // 8) in refusal.value.why
    assert later.value.why == refusal.value.why, "a run that resumes there says the same"


def test_what_is_cut_off_is_counted_or_refused(monkeypatch):
    short = {"task_feature_lengths": {"inputs": 5, "targets": 16}, "batch_size": 6, "pack": False}
    source = toy.data().provider.source
    monkeypatch.setattr(source, "counts", {"read": 96})
    cut = stream(**short)
    long = sum(
        np.count_nonzero(row) == 5 and row[-1] != 1
        for b in take(cut, 40)
        for row in b["encoder_input_tokens"]
    )
    assert long > 0
    counts = cut.counts()[toy.TASK]
    assert counts["read"] == 96
    assert long <= counts["truncated"] <= long + 200  # what comes next is made ahead
    with refuses("TASK_FEATURE_LENGTHS"):
        take(stream(**short, trim_output_features=False), 40)
