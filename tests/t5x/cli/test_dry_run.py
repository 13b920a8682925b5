"""A dry run ends with a table of what it has checked."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import pytest
import seqio

from common.source import CorpusTask
from common.tables import fails, ok
from fakes import toy
from fakes.refuses import refuses
from t5x.checkpointing.restore import Match
from t5x.cli import dry_run
from t5x.loop.triggers import TrainingPlan
from t5x.partitioning import PjitPartitioner
from tasks import mixtures


def test_steps_that_are_left():
    plan = TrainingPlan(total_steps=3000, save_period=1000)
    assert dry_run.steps(plan, 0).figure == "0 to 3,000, saved every 1,000, evaluated never"
    done = dry_run.steps(plan, 3000)
    assert done.verdict == "warning"
    assert done.to_set.startswith("set TRAIN_STEPS above 3000, or TRAIN_STEPS_RELATIVE")


@pytest.mark.parametrize(
    ("period", "steps", "saved"),
    [
        (None, (), "never"),
        (1000, (50, 70), "every 1,000 and at 2 steps of checkpoint_steps"),
        (None, (50,), "at 1 step of checkpoint_steps and at the end"),
        (None, (5, 4000), "at the end"),
    ],
)
def test_steps_that_are_saved(period, steps, saved):
    plan = TrainingPlan(total_steps=3000, save_period=period, checkpoint_steps=steps)
    assert dry_run.steps(plan, 10).figure == f"10 to 3,000, saved {saved}, evaluated never"


def test_an_embedding_of_many_unused_rows_is_a_warning():
    params = {"kernel": jax.ShapeDtypeStruct((1000, 300), jnp.float32)}
    assert dry_run.model(params, toy.VOCABULARY, 384).verdict == "ok"  # 259 ids, padded
    found = dry_run.model(params, toy.VOCABULARY, 4096)
    assert (found.verdict, found.to_set) == ("warning", "set network.*.vocab_size to 384")
    assert "3,837 of 4,096 rows of the embedding are never used" in found.figure


class Shown(CorpusTask):
    """A task that says what its corpus is and holds."""

    def describe_corpus(self, split):
        return f"1 file of {split}"

    def look(self, split, lengths, pack):
        rows = {"files": ok("1 file"), "targets": fails("4 % of 9 targets", "set VOCABULARY_FILE")}
        numbers = {"corpus_tokens": 4_000, "known": " (by their sizes)", "row_tokens": 10.0}
        numbers["most_epochs"] = 4.0
        rows["pieces"] = ok(f"{split} {lengths['inputs']} {pack}", numbers=numbers)
        return [dataclasses.replace(row, check=name) for name, row in rows.items()]


@pytest.fixture
def shown():
    """Return a configuration of batches of 8 rows of two tasks that show their corpora."""
    feature = seqio.Feature(toy.VOCABULARY)
    source = seqio.FunctionDataSource(toy.dataset, ["train"])
    for name in ("toy_one", "toy_other"):
        settings = {"preprocessors": [], "output_features": {"targets": feature}}
        seqio.TaskRegistry.add(name, source=source, task_cls=Shown, **settings)
    mixture = seqio.MixtureRegistry.add("toy_both", [("toy_one", 1.0), ("toy_other", 3.0)])
    yield toy.data("train", mixture_or_task_name=mixture.name, batch_size=8)
    seqio.MixtureRegistry.remove(mixture.name)
    for name in ("toy_one", "toy_other"):
        seqio.TaskRegistry.remove(name)


def test_what_corpora_hold_and_how_often_they_are_read_is_shown(shown, capsys):
    rows = dry_run.corpora(shown, 100, 300)
    assert rows["pieces of toy_one"].figure == "train 16 True"
    # 200 batches of 8 rows of 10 tokens, a quarter of them of this task.
    assert rows["epochs of toy_one"].verdict == "ok"
    assert rows["epochs of toy_one"].numbers["epochs"] == 1.0
    assert rows["epochs of toy_other"].numbers["epochs"] == 3.0
    often = dry_run.corpora(shown, 100, 500)["epochs of toy_other"]
    assert (often.verdict, often.numbers["epochs"]) == ("warning", 6.0)
    assert "set TRAIN_STEPS to about 366" in often.to_set
    with refuses("targets of toy_one") as refusal:
        dry_run.show(rows)
    assert refusal.value.to_set == "set VOCABULARY_FILE"
    assert "targets of toy_other" in capsys.readouterr().out  # the entire table comes first
    assert dry_run.corpora(toy.data(), 0, 300) == {}  # of a plain task


def test_a_corpus_is_read_no_more_often_than_its_limit(shown):
    seqio.TaskRegistry.get("toy_other").most_epochs = 2
    row = dry_run.corpora(shown, 100, 500)["epochs of toy_other"]
    assert (row.verdict, row.numbers["epochs"], row.numbers["read"]) == ("ok", 2.0, 8_000)


def test_epochs_count_the_rates_of_the_steps_that_are_trained(shown):
    rates = {"toy_one": [(0, 1), (100, 1)], "toy_other": [(0, 0), (100, 3)]}
    mixture = mixtures.add("toy_phased", rates)
    try:
        cfg = dataclasses.replace(shown, mixture_or_task_name=mixture.name)
        # 400 steps of 80 tokens, of which the other task has three quarters in the last 300.
        rows = dry_run.corpora(cfg, 500, 900)
        found = [rows[f"epochs of {name}"].numbers["epochs"] for name in rates]
        assert found == pytest.approx([80 * (100 + 300 / 4) / 4000, 80 * 300 * 0.75 / 4000])
        later = dry_run.corpora(cfg, 500, 900, mixture_steps=500)
        assert later["epochs of toy_other"].numbers["epochs"] == pytest.approx(80 * 300 / 4000)
        assert "TRAIN_STEPS" not in later["epochs of toy_other"].to_set
    finally:
        seqio.MixtureRegistry.remove(mixture.name)


def test_the_least_time_is_that_of_the_products_on_these_devices():
    partitioner = PjitPartitioner(devices=jax.devices()[:1])
    trainer = types.SimpleNamespace(model=toy.shared_model(), partitioner=partitioner)
    names = ("encoder_input_tokens", "decoder_target_tokens")
    batch = {name: jax.ShapeDtypeStruct((16, 16), jnp.int32) for name in names}
    plans = [TrainingPlan(5 + n) for n in (10, 10**15)]
    short, long = (dry_run.duration(trainer, batch, plan, first=5) for plan in plans)
    assert (short.verdict, long.verdict) == ("ok", "warning")
    assert "10 steps on this CPU" in short.figure
    assert "TRAIN_STEPS" in long.to_set


def test_what_a_checkpoint_lacks_is_a_warning():
    wanted = dict.fromkeys(("target/a", "target/b", "state/step"))
    complete = Match({}, wanted, {name: name for name in wanted}, (), None)
    assert dry_run.start("c", complete).verdict == "ok"
    partial = Match({}, wanted, {"target/a": "target/a"}, ("target/c",), None)
    assert "1 start from scratch and 1 unknown" in dry_run.start("c", partial).figure
    new = Match({}, wanted, {name: name for name in wanted}, (), "it is Adam's")
    assert "optimizer state is new: it is Adam's" in dry_run.start("c", new).figure
    assert dry_run.start(None, None).figure == "from scratch"
