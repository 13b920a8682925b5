"""Mixtures have the rates and epochs they are given, and resume exactly within an epoch."""

import collections
import json

import numpy as np
import pytest
import seqio

from common.errors import UserError
from fakes.refuses import refuses
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.stream import TrainStream
from t5x.start import preconditions
from tasks import corpora, mixtures, pairs, vocabularies
from tasks.corpus.source import CorpusSource
from tasks.rows import Rows

LENGTHS = {"inputs": 32, "targets": 32}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """Two corpora of letters that the other does not have."""
    names = {}
    for name, letter, documents in (("mix_many_a", "a", 400), ("mix_few_b", "b", 40)):
        folder = tmp_path_factory.mktemp(name)
        lines = [json.dumps({"text": letter * 30}) for _ in range(documents)]
        (folder / "train.jsonl").write_text("\n".join(lines))
        source = CorpusSource(str(folder), splits=["train"])
        corpora.add(name, source, vocabularies.byt5(), "prefix_lm")
        names[letter] = name
    return names


def stream(name, batch=16, shards=1, split="train"):
    cfg = DatasetConfig(name, LENGTHS, split, batch, True, 0)
    return TrainStream(cfg, seqio.EncDecFeatureConverter, (0, batch), 0, shards)


def letters(batch):
    return ["".join(chr(t - 3) for t in row if t > 1)[:1] for row in batch["encoder_input_tokens"]]


def test_temperature_evens_out_the_shares():
    assert mixtures.rates_of({"a": 90, "b": 10}) == pytest.approx({"a": 0.9, "b": 0.1})
    assert mixtures.rates_of({"a": 90, "b": 10}, 2) == pytest.approx({"a": 0.75, "b": 0.25})
    with refuses("temperature"):
        mixtures.rates_of({"a": 1}, 0)


def test_each_phase_has_shares_of_its_own_sizes():
    found = mixtures.phases_of({"a": [(0, 3), (10, 1)], "b": [(0, 0), (10, 2), (20, 0)], "c": 1})
    assert found == {
        0: pytest.approx({"a": 0.75, "b": 0.0, "c": 0.25}),
        10: pytest.approx({"a": 0.25, "b": 0.5, "c": 0.25}),
        20: pytest.approx({"a": 0.5, "b": 0.0, "c": 0.5}),
    }
    assert mixtures.phases_of({"a": 90, "b": [(0, 10)]}, 2) == {
        0: pytest.approx({"a": 0.75, "b": 0.25})
    }


def test_the_temperature_may_change_with_the_step_as_a_size_may():
    """τ of 0.7, then 0.5 and 0.3, as mmBERT: the larger corpus has n ** τ times the other's."""
    taus = {0: 0.7, 20: 0.5, 30: 0.3}
    temperature = [(step, 1 / tau) for step, tau in taus.items()]
    phases = mixtures.phases_of({"eng": 90, "ron": 10, "ka": [(0, 0), (30, 10)]}, temperature)
    assert list(phases) == list(taus)
    for step, tau in taus.items():
        assert phases[step]["eng"] / phases[step]["ron"] == pytest.approx(9**tau)
    assert [phases[step]["ka"] / phases[step]["ron"] for step in taus] == [0, 0, 1]


@pytest.mark.parametrize("temperature", [0, [(0, 2.0), (9, 0.0)], [(5, 2.0)], [(0, "high")]])
def test_a_temperature_that_is_none_is_refused(temperature):
    with refuses("temperature"):
        mixtures.phases_of({"a": 1}, temperature)


NO_RATES = {
    "no task": {},
    "0": {"a": 0},
    "below 0": {"a": -1},
    "no number": {"a": float("nan")},
    "none": {"a": None},
    "a table": {"a": {0: 1}},
    "infinite": {"a": float("inf")},
    "no pair": {"a": [0, 1]},
    "no step": {"a": [(0, 1), (1.5, 2)]},
    "below 0 in a phase": {"a": [(0, 1), (5, -1)]},
    "from a later step": {"a": [(5, 1)], "b": 1},
    "steps that fall": {"a": [(0, 1), (9, 2), (5, 3)]},
    "a step twice": {"a": [(0, 1), (0, 2)]},
    "no phase": {"a": []},
    "0 at every step": {"a": [(0, 0), (5, 0)], "b": 1},
    "nothing in a phase": {"a": [(0, 1), (5, 0)], "b": [(0, 1), (3, 0), (7, 1)]},
}


@pytest.mark.parametrize("name", NO_RATES)
def test_rates_that_are_none_are_refused_in_a_sentence(name):
    with pytest.raises(UserError) as caught:
        mixtures.add("mix_none", NO_RATES[name])
    assert "\n" not in str(caught.value)
    assert "mix_none" not in seqio.MixtureRegistry.names()


@pytest.mark.parametrize("bounded", [False, True])
def test_a_part_that_is_no_task_is_refused_in_a_sentence(tasks, bounded):
    """A mixture can be a part, but has no epochs of its own."""
    part = "mix_of_one" if bounded else "mix_of_nobody"
    if bounded:
        mixtures.add(part, {tasks["a"]: 1})
    with pytest.raises(UserError, match=part):
        mixtures.add("mix_none", {part: 1}, epochs={part: 2} if bounded else None)


def test_phases_inside_phases_and_a_task_in_two_parts_are_refused(tasks):
    a, b = tasks["a"], tasks["b"]
    mixtures.add("mix_phased", {a: [(0, 1), (5, 0)], b: [(0, 0), (5, 1)]})
    mixtures.add("mix_inner", {a: 1, b: 1})
    for sizes in ({"mix_phased": 1}, {"mix_inner": [(0, 1), (5, 2)], a: 1}):
        with pytest.raises(UserError, match=r"mix_phased|mix_inner"):
            mixtures.add("mix_outer", sizes)


def test_a_mixture_is_drawn_by_its_rates_and_resumes_exactly(tasks, tmp_path):
    mixtures.add("mix_rates", {tasks["a"]: 3, tasks["b"]: 1})
    undisturbed = stream("mix_rates")
    wanted = [next(undisturbed) for _ in range(60)]
    drawn = collections.Counter(letter for batch in wanted for letter in letters(batch))
    assert drawn["a"] / (drawn["a"] + drawn["b"]) == pytest.approx(0.75, abs=0.04)
    first = stream("mix_rates")
    for _ in range(25):
        next(first)
    first.save(str(tmp_path))
    again = stream("mix_rates")
    again.restore(str(tmp_path))
    for batch in wanted[25:]:
        for name, value in next(again).items():
            np.testing.assert_array_equal(value, batch[name])


def test_a_mixture_resumed_twice_within_its_epochs_equals_an_undisturbed_one(tasks, tmp_path):
    sizes = {tasks["a"]: 400, tasks["b"]: 40}
    mixtures.add("mix_resumed", sizes, temperature=2.0, epochs={tasks["b"]: 3})
    start = lambda: stream("mix_resumed", shards=2)
    undisturbed = start()
    wanted = [next(undisturbed) for _ in range(45)]
    found, place = [], None
    for end in (7, 19, 45):  # amid the first and the second epoch of b, and after its third
        resumed = start()
        if place:
            resumed.restore(place)
        found += [next(resumed) for _ in range(end - len(found))]
        place = str(tmp_path / str(end))
        resumed.save(place)
        next(resumed)  # reading after the last save is lost
    for batch, other in zip(found, wanted, strict=True):
        for name in batch:
            np.testing.assert_array_equal(batch[name], other[name])
    drawn = [collections.Counter(letters(batch)) for batch in found]
    assert sum(drawn[:7], collections.Counter())["b"] < 40 * 30 / 32
    assert 40 * 30 / 32 < sum(drawn[:19], collections.Counter())["b"] < 2 * 40 * 30 / 32
    assert sum(drawn, collections.Counter())["b"] == pytest.approx(3 * 40 * 30 / 32, abs=8)
    assert not any(batch["b"] for batch in drawn[-3:])


def test_a_mixture_of_bounded_corpora_ends(tasks):
    epochs = dict.fromkeys(tasks.values(), 1)
    mixtures.add("mix_ending", dict.fromkeys(tasks.values(), 1), epochs=epochs)
    taken = []
    with pytest.raises(ValueError, match=r"mix_ending ends after \d+ batches"):
        taken.extend(map(letters, stream("mix_ending")))
    # All 440 documents of 30 bytes in runs of about 32, but for a last batch that is not full.
    assert 390 <= 16 * len(taken) <= 440 * 30 // 31


def test_epochs_are_bounded_in_a_split_of_any_name(tmp_path):
    (tmp_path / "small.jsonl").write_text("\n".join([json.dumps({"text": "a" * 30})] * 40))
    source = CorpusSource(files={"small": str(tmp_path / "small.jsonl")})
    corpora.add("mix_small", source, vocabularies.byt5(), "prefix_lm")
    mixtures.add("mix_of_small", {"mix_small": 1}, epochs={"mix_small": 2})
    with pytest.raises(ValueError, match=r"mix_of_small ends after"):
        for _ in zip(range(20), stream("mix_of_small", split="small"), strict=False):
            pass


def test_impossible_mixtures_are_refused(tasks):
    with refuses("mixture 'mix_x'"):
        mixtures.add("mix_x", {tasks["a"]: 1}, epochs={"mix_other": 1})
    for epochs in (0, True, 1.5):
        with refuses(f"epochs of task {tasks['a']!r}", epochs):
            mixtures.add("mix_y", {tasks["a"]: 1}, epochs={tasks["a"]: epochs})


def test_fine_tunes_are_mixed_and_each_is_measured(tmp_path):
    for letter, rows in (("c", 90), ("d", 10)):
        row = json.dumps({"in": letter * 4, "out": letter}) + "\n"
        (tmp_path / f"{letter}.jsonl").write_text(row * rows)
        source = Rows(
            files=dict.fromkeys(("train", "validation"), str(tmp_path / f"{letter}.jsonl")),
            columns={"inputs": "in", "targets": "out"},
        )
        measure = lambda targets, predictions: {"n": len(targets)}
        pairs.add(f"mix_{letter}", source, vocabularies.byt5(), metric_fns=[measure])
    mixtures.add("mix_pairs", {"mix_c": 90, "mix_d": 10}, temperature=2)
    drawn = stream("mix_pairs")
    found = collections.Counter(letter for _ in range(60) for letter in letters(next(drawn)))
    assert found["c"] / (found["c"] + found["d"]) == pytest.approx(0.75, abs=0.04)
    preconditions.check_metrics(DatasetConfig("mix_pairs", None, "validation", 16, False, 0))
    measured = seqio.Evaluator(
        "mix_pairs", seqio.EncDecFeatureConverter(pack=False), "validation", seed=0
    )
    assert {task.name for task in measured.eval_tasks} == {"mix_c", "mix_d"}
