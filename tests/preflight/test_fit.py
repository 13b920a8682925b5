"""`preflight.fit` cuts the same batch differently for each slice; the compiler is a fake one."""

import pytest

from fakes import fake_compiler
from fakes.refuses import refuses
from preflight import fit
from preflight.aot.recipe import Recipe
from preflight.search import BATCH, MICROBATCHES, PARTITIONS

RECIPE = Recipe(("gin/ro_t5x_tiny.gin",))


@pytest.fixture
def context():
    return fake_compiler.context()


def test_a_recipe_that_fits_gets_no_flags(context, monkeypatch):
    fake_compiler.install(monkeypatch)
    assert fit.fitting_trial(RECIPE, context).settings == ()


def test_one_that_does_not_is_cut_at_the_least_price(context, monkeypatch):
    fake_compiler.install(monkeypatch, state=1.0, limit=4.5)
    assert fit.fitting_trial(RECIPE, context).settings == ((MICROBATCHES, 2),)


def test_a_smaller_batch_is_no_fit(monkeypatch):
    fake_compiler.install(monkeypatch, state=2.0, limit=0.9, **{BATCH: 64, PARTITIONS: 4})
    with refuses(f"{RECIPE.name} on v4-8"):
        fit.fitting_trial(RECIPE, fake_compiler.context(rows=64, spread=4))
