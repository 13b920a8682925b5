"""What does not fit is changed at the least price, and the best settings are found.

The compiler is a fake one, whose memory and cycles are a line of arithmetic.
"""

import dataclasses

import pytest

from fakes import fake_compiler
from fakes.encoder_golden import EncoderGolden
from preflight import search
from preflight.aot.compiler import OutOfMemory
from preflight.aot.recipe import Recipe
from preflight.search import BATCH, MICROBATCHES, PARTITIONS, REMAT, Trial, compile_trial

RECIPE = Recipe(("gin/ro_t5x_tiny.gin",))


def fit(context):
    trials = search.fit(RECIPE, context, compile_trial(RECIPE, context), say=str)
    return search.cheapest(trials), trials


def names(trials):
    return {name for trial in trials for name, _ in trial.settings}


def test_a_trial_is_described_by_flags_and_outcome(monkeypatch):
    fake_compiler.install(monkeypatch, limit=5.0)
    context = fake_compiler.context()
    trial = compile_trial(RECIPE, context, ((REMAT, "full"), (BATCH, 8)))
    assert trial.flags == f"--gin.{REMAT}=\"'full'\" --gin.{BATCH}=8"
    assert trial.outcome.startswith("fits in 3.1 GiB, ")
    assert compile_trial(RECIPE, context).outcome == "needs 6.0 GiB of 5.00"
    assert compile_trial(RECIPE, context, ((BATCH, 6),)).outcome == "is refused: does not divide"


def test_a_price_is_of_as_many_sequences_as_the_recipe_reads(monkeypatch):
    fake_compiler.install(monkeypatch)
    context = fake_compiler.context()
    prices = [compile_trial(RECIPE, context, ((BATCH, n),)).price.hours for n in (8, 16, 32)]
    # In the fake compiler a sequence costs the same in any batch.
    assert prices == pytest.approx([prices[0]] * 3)


def test_the_policy_of_an_encoder_has_the_name_of_its_configuration():
    context = fake_compiler.context()
    model = EncoderGolden("modernbert").model()
    model.optimizer_def = context.run.model.optimizer_def
    context.run.model = model
    name = "network.ModernBertConfig.remat_policy"
    columns = search.single_changes(context, OutOfMemory("", used=40.0, limit=30.0, arguments=1.0))
    assert [((name, "full"),)] in columns
    combined = list(search.combined_changes(context))
    assert all((name, "full") in settings for settings in combined)
    assert all(settings[0][0] == name for column in search.grid(context) for settings in column)
    (row,) = search.sweep_rows([Trial(((name, "full"), (BATCH, 8), (PARTITIONS, 1)))])
    assert (row[name], row["remat"]) == ("full", "full")
    assert "full" in search.table([row], search.SWEEP_COLUMNS)


# --- fit


def test_the_cheapest_of_all_kinds_is_found(monkeypatch):
    """Microbatches cost 10 %, remat 30 %, two partitions 20 %: all are tried."""
    fake_compiler.install(monkeypatch, state=1.0, limit=4.5)
    cheapest, trials = fit(fake_compiler.context())
    assert cheapest.settings == ((MICROBATCHES, 2),)
    assert names(trials) == {MICROBATCHES, REMAT, PARTITIONS}


def test_only_partitions_are_tried_where_the_state_alone_is_too_large(monkeypatch):
    fake_compiler.install(monkeypatch, state=16.0, limit=10.0)
    cheapest, trials = fit(fake_compiler.context())
    assert names(trials) == {PARTITIONS}
    assert cheapest.settings[0][0] == PARTITIONS


def test_a_smaller_batch_is_the_last_resort(monkeypatch):
    compiled = fake_compiler.install(
        monkeypatch, state=2.0, limit=0.9, **{BATCH: 64, PARTITIONS: 4}
    )
    cheapest, _ = fit(fake_compiler.context(rows=64, spread=4))
    assert dict(cheapest.settings)[BATCH] == 2
    before = [values for values in compiled if values[BATCH] == 64]
    smaller = next(values for values in compiled if values[BATCH] < 64)
    assert compiled.index(before[-1]) < compiled.index(smaller)
    assert any(values[REMAT] == "full" and values[MICROBATCHES] > 1 for values in before)


def test_no_settings_fit_a_state_larger_than_the_slice(monkeypatch):
    fake_compiler.install(monkeypatch, state=400.0)
    cheapest, trials = fit(fake_compiler.context())
    assert cheapest is None
    assert trials
    row = search.best_on_slice(RECIPE, fake_compiler.context(), say=str)
    assert (row["fits"], row["settings"], row["mfu"]) == (False, None, None)


def test_only_values_that_divide_are_tried():
    assert search.more_microbatches(fake_compiler.context(rows=24)) == [2]
    assert search.larger_partitions(fake_compiler.context(spread=2)) == [4]
    assert search.larger_partitions(fake_compiler.context(spread=4)) == []
    both = ["minimal", "full"]
    for own, stronger in (("auto", ["full"]), ("none", both), ("products", both), ("full", [])):
        found = search.stronger_remat(fake_compiler.context(remat=own))
        assert found == [(REMAT, policy) for policy in stronger]


# --- slices compared


def test_the_best_settings_of_each_slice_are_found(monkeypatch):
    fake_compiler.install(monkeypatch, state=12.0, limit=10.0)
    contexts = [fake_compiler.context(tpu=name) for name in ("v4-8", "v5e-8")]
    rows = [search.best_on_slice(RECIPE, context, say=str) for context in contexts]
    # One partition does not hold the state; two are cheaper than four.
    assert (rows[0]["fits"], rows[0]["partitions"]) == (True, 2)
    own = compile_trial(RECIPE, contexts[0], ((PARTITIONS, 2),))
    assert rows[0]["hours"] == pytest.approx(own.price.hours)
    assert rows[0]["chip_hours"] == pytest.approx(4 * own.price.hours)
    table = search.table(rows, search.COMPARISON_COLUMNS).splitlines()
    assert len(table) == 3
    assert table[1].split()[:3] == ["v4-8", "4", "yes"]
    assert table[1].endswith("--gin.partitioning.PjitPartitioner.num_partitions=2")


@pytest.mark.parametrize(("overhead", "batch"), [(0, 16), (40_000_000, 64)])
def test_a_larger_batch_is_chosen_where_it_pays(overhead, batch, monkeypatch):
    fake_compiler.install(monkeypatch, limit=40.0)
    compiled = search.compile_step

    def with_overhead(request, cache=None):
        figures = compiled(request, cache)
        return dataclasses.replace(figures, cycles=figures.cycles + overhead)

    monkeypatch.setattr(search, "compile_step", with_overhead)
    assert search.best_on_slice(RECIPE, fake_compiler.context(), say=str)["batch"] == batch


# --- the sweep


def test_the_sweep_tries_what_divides_and_marks_the_frontier(monkeypatch):
    compiled = fake_compiler.install(monkeypatch, limit=6.0)
    trials = search.sweep(RECIPE, fake_compiler.context(), say=str)
    assert {values[PARTITIONS] for values in compiled} == {1, 2}
    assert {values[BATCH] for values in compiled} == {8, 16, 32}
    best = search.frontier(trials)
    speed = lambda trial: trial.price.tokens_per_second
    fitting = [trial for trial in trials if trial.fits]
    for trial in best:
        smaller = [other for other in fitting if other.used_gib <= trial.used_gib]
        assert max(map(speed, smaller)) == speed(trial)
    rows = search.sweep_rows(trials)
    table = search.table(rows, search.SWEEP_COLUMNS)
    assert sum(line.endswith(" yes") for line in table.splitlines()) == len(best) >= 2
    assert sum(row["frontier"] for row in rows) == len(best)
    assert len(table.splitlines()) == len(trials) + 1


def test_batches_larger_than_one_that_does_not_fit_are_not_tried(monkeypatch):
    compiled = fake_compiler.install(monkeypatch, limit=3.9)
    search.sweep(RECIPE, fake_compiler.context(), say=str)
    none = [v[BATCH] for v in compiled if (v[REMAT], v[PARTITIONS]) == ("none", 1)]
    assert none == [8]
