"""What does not fit is changed at the least price.

The compiler is a fake one, whose memory and cycles are a line of arithmetic.
"""

import pytest

from fakes import fake_compiler
from fakes.encoder_golden import EncoderGolden
from fakes.fake_compiler import REMAT
from preflight import search
from preflight.aot.compiler import OutOfMemory
from preflight.aot.recipe import Recipe
from preflight.search import BATCH, MICROBATCHES, PARTITIONS, compile_trial

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


def test_the_strongest_of_a_single_kind_comes_before_a_smaller_batch(monkeypatch):
    """One chip has no partitions, and full rematerialization leaves only microbatches."""
    settings = {BATCH: 64, REMAT: "full"}
    compiled = fake_compiler.install(monkeypatch, state=2.0, limit=5.0, **settings)
    cheapest, _ = fit(fake_compiler.context(rows=64, remat="full", tpu="v5e-1"))
    assert cheapest.settings == ((MICROBATCHES, 64),)
    assert [values[MICROBATCHES] for values in compiled] == [1, 8, 16, 64]


def test_no_settings_fit_a_state_larger_than_the_slice(monkeypatch):
    fake_compiler.install(monkeypatch, state=400.0)
    cheapest, trials = fit(fake_compiler.context())
    assert cheapest is None
    assert trials


def test_only_values_that_divide_are_tried():
    assert search.more_microbatches(fake_compiler.context(rows=24)) == [2]
    assert search.larger_partitions(fake_compiler.context(spread=2)) == [4]
    assert search.larger_partitions(fake_compiler.context(spread=4)) == []
    both = ["minimal", "full"]
    for own, stronger in (("auto", ["full"]), ("none", both), ("products", both), ("full", [])):
        found = search.stronger_remat(fake_compiler.context(remat=own))
        assert found == [(REMAT, policy) for policy in stronger]
