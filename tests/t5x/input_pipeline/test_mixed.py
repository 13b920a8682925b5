"""A mixture whose rates change: exact at the step, on any hosts, after any kill, no text twice."""

import collections
import json
import time

import pytest
import seqio

from common.errors import UserError
from fakes import toy
from fakes.arrays import assert_equal_batches
from t5x.input_pipeline.encoder_rows import EncoderFeatureConverter
from t5x.input_pipeline.packing import CHUNK
from t5x.input_pipeline.stream import TrainStream
from tasks import mixtures
from tasks.rows import Rows
from tasks.task import Task

LENGTHS = {"inputs": 24, "targets": 24}
BORDER, ROWS, SHARDS = 4, 16, 2
SIZES = {"old": 200, "new": 90, "few": 20}
T5 = seqio.EncDecFeatureConverter
KINDS = {
    "one a row": ("", T5, False),
    "packed": ("", T5, True),
    "packed for an encoder": ("masked_", EncoderFeatureConverter, True),
}


def masked(dataset):
    """Give an encoder's examples, with labels everywhere."""
    weighted = lambda x: {"inputs": x["inputs"], "targets": x["inputs"]}
    return dataset.map(lambda x: weighted(x) | {"loss_weights": x["inputs"] * 0 + 1})


@pytest.fixture(scope="module", autouse=True)
def registered(tmp_path_factory):
    """Tasks of numbered documents, for a T5 and for an encoder, and mixtures of them."""
    folder, feature = tmp_path_factory.mktemp("mixed"), seqio.Feature(toy.VOCABULARY, add_eos=True)
    for name, n in SIZES.items():
        rows = [json.dumps({"inputs": f"{name} {i}", "targets": f"{i}"}) for i in range(n)]
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
        columns = {"inputs": "inputs", "targets": "targets"}
        for prefix, last in (("", []), ("masked_", [masked])):
            source = Rows(files={"train": f"{folder}/{name}.jsonl"}, columns=columns, held_out={})
            steps = [seqio.preprocessors.tokenize, seqio.preprocessors.append_eos, *last]
            features = {"inputs": feature, "targets": feature}
            features |= (
                {"loss_weights": seqio.Feature(seqio.PassThroughVocabulary(2))} if last else {}
            )
            add = seqio.TaskRegistry.add
            given = {"source": source, "preprocessors": steps, "output_features": features}
            add(prefix + name, task_cls=Task, **given)
    added = []
    for prefix in ("", "masked_"):
        phased = {"old": [(0, 1.0), (BORDER, 1)], "new": [(0, 0.0), (BORDER, 3)]}
        phased = {prefix + name: rates for name, rates in phased.items()}
        added.append(mixtures.add(f"{prefix}phased", phased))
    added.append(mixtures.add("swapped", {"old": [(0, 1), (3, 0)], "new": [(0, 0), (3, 1)]}))
    bounded = {"old": [(0, 0), (2, 1)], "new": [(0, 0), (2, 1)], "few": [(0, 1), (2, 3)]}
    added.append(mixtures.add("bounded", bounded, epochs={"few": 2}))
    added.append(mixtures.add("before", {"old": 3, "few": 1}))
    added.append(mixtures.add("decay", {"before": 0.5, "new": 0.5}))
    added.append(mixtures.add("other", {"few": 0.5, "new": 0.5}))
    yield
    for mixture in added:
        seqio.MixtureRegistry.remove(mixture.name)
    for name in SIZES:
        seqio.TaskRegistry.remove(name)
        seqio.TaskRegistry.remove(f"masked_{name}")


def start(name, kind="one a row", rows=(0, ROWS), shards=SHARDS):
    prefix, converter, pack = KINDS[kind]
    data = {"mixture_or_task_name": prefix + name, "batch_size": ROWS, "pack": pack}
    cfg = toy.data(**data, task_feature_lengths=LENGTHS)
    return TrainStream(cfg, converter, rows, 0, shards=shards)


def take(stream, n):
    return [next(stream) for _ in range(n)]


def documents(row, batch):
    """Return the documents of a row."""
    tokens = batch["encoder_input_tokens"][row]
    segments = batch.get("encoder_segment_ids", {row: (tokens > 0).astype(int)})[row]
    numbers = range(1, segments.max() + 1)
    return [toy.VOCABULARY.decode(tokens[segments == n].tolist()) for n in numbers]


def names(batch, rows=range(ROWS)):
    return collections.Counter(d.split()[0] for row in rows for d in documents(row, batch))


@pytest.mark.parametrize("kind", KINDS)
def test_a_phase_begins_with_its_step_and_no_document_is_read_again(kind):
    batches = take(start("phased", kind), 24 if kind == "one a row" else 12)
    assert all(set(names(batch)) == {"old"} for batch in batches[:BORDER])
    after = sum(map(names, batches[BORDER:]), collections.Counter())
    assert after["new"] / after.total() == pytest.approx(0.75, abs=0.05)
    if kind == "one a row":
        assert names(batches[BORDER])["new"] >= ROWS // 2  # at once
    else:  # the open row of each shard may begin with what was drawn before
        firsts = {shard * (ROWS // SHARDS) for shard in range(SHARDS)}
        rest = names(batches[BORDER], set(range(ROWS)) - firsts)
        assert rest["new"] > rest["old"]
    found = [d for batch in batches for row in range(ROWS) for d in documents(row, batch)]
    counts = collections.Counter(d for d in found if d.startswith("old"))
    epochs = counts.total() / SIZES["old"]
    assert max(counts.values()) <= int(epochs) + 2  # shards draw unequally many
    if epochs < 1:
        assert set(counts.values()) == {1}


@pytest.mark.parametrize(
    ("kind", "kills"),  # (the step of the kill, how many hosts take over from one)
    [
        ("one a row", [(BORDER, 2)]),
        ("packed", [(0, 4), (BORDER - 1, 1), (BORDER, 8), (BORDER + 1, 2)]),
        ("packed for an encoder", [(BORDER + 1, 2)]),
    ],
)
def test_the_order_is_the_same_on_any_hosts_and_after_a_kill_at_any_step(kind, kills, tmp_path):
    whole, wanted = start("phased", kind), []
    for step in range(BORDER + 6):
        if step in dict(kills):
            whole.save(str(tmp_path / f"{step}"))
        wanted.append(next(whole))
    for step, hosts in kills:
        for host in {0, hosts - 1}:
            rows = (host * ROWS // hosts, (host + 1) * ROWS // hosts)
            part = start("phased", kind, rows)
            part.restore(str(tmp_path / f"{step}"))
            mine = [{k: v[slice(*rows)] for k, v in batch.items()} for batch in wanted[step:]]
            assert_equal_batches(take(part, len(mine)), mine)


def test_a_stream_that_goes_back_does_not_keep_what_it_had_opened_since(tmp_path):
    stream = start("phased")
    take(stream, 2)
    stream.save(str(tmp_path))
    wanted = take(stream, 6)
    stream.restore(str(tmp_path))
    assert_equal_batches(take(stream, 6), wanted)


def test_a_corpus_is_not_read_while_its_rate_is_0():
    stream = start("swapped")
    earlier = {name: counts.get("read", 0) for name, counts in stream.counts().items()}
    read = lambda name: stream.counts()[name].get("read", 0) - earlier.get(name, 0)
    take(stream, 2)
    assert stream.wait()  # the batch of step 2 is made
    assert (read("new"), read("old") > 0) == (0, True)
    take(stream, 8)
    before = -1
    while before != (before := read("old")):  # until what is prefetched is complete
        time.sleep(0.3)
        take(stream, 16)  # which takes a slow machine longer, too
    take(stream, 8)
    assert read("new") > 0
    assert read("old") == before


def test_a_bounded_corpus_ends_in_its_phase_also_after_a_kill(tmp_path):
    whole = start("bounded", shards=1)
    wanted = take(whole, 2)
    for step in range(2, 12):
        if step in (2, 3, 8):
            whole.save(str(tmp_path / f"{step}"))
        wanted.append(next(whole))
    total = sum(map(names, wanted), collections.Counter())
    assert total["few"] == 2 * SIZES["few"]
    assert set(names(wanted[-1])) == {"old", "new"}  # which take over
    for step in (2, 3, 8):
        again = start("bounded", shards=1)
        again.restore(str(tmp_path / f"{step}"))
        assert_equal_batches(take(again, 12 - step), wanted[step:])


def test_a_branch_with_another_mixture_goes_on_where_the_run_was(tmp_path, caplog):
    run = start("before")
    take(run, 3)
    run.save(str(tmp_path / "run"))
    wanted = collections.deque(d for batch in take(run, 30) for d in by_shard(batch))
    branch = start("decay")
    branch.restore(str(tmp_path / "run"))
    assert branch.steps == 0  # its own phases would begin here
    assert "before continues" in caplog.text
    assert "new begins" in caplog.text
    for batch in take(branch, 6):
        for document in by_shard(batch):
            if not document[1].startswith("new"):
                wanted.remove(document)  # raises ValueError for one that the run would not read
    branch.save(str(tmp_path / "branch"))
    again = start("decay")
    again.restore(str(tmp_path / "branch"))
    assert_equal_batches(take(again, 4), take(branch, 4))


def by_shard(batch):
    size = ROWS // SHARDS
    return [(row // size, d) for row in range(ROWS) for d in documents(row, batch)]


def test_a_branch_whose_mixture_shares_no_stream_begins_and_says_so(tmp_path, caplog):
    run = start("before")
    take(run, 2)
    run.save(str(tmp_path))
    branch = start("other")
    branch.restore(str(tmp_path))
    assert "other begins" in caplog.text
    in_flight = CHUNK // (ROWS // SHARDS)  # batches of what the run had made of its last chunks
    assert set(names(take(branch, in_flight + 1)[-1])) == {"few", "new"}


def test_what_cannot_read_phases_refuses_them():
    with pytest.raises(UserError, match="phased"):
        seqio.get_mixture_or_task("phased").get_dataset(LENGTHS, "train")
