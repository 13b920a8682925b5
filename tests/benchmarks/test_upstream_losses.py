"""Ten losses of each recipe with both trainers: each recipe is reduced, and trains."""

import os

import pytest
from golden import recipe_facts

from benchmarks import upstream_losses

RECIPES = recipe_facts.recipes()


def test_the_comparison_is_of_every_recipe_and_reduces_it():
    assert {*RECIPES} <= {*upstream_losses.all_recipes()}
    for recipe in RECIPES:
        flags = upstream_losses.flags_of(recipe)
        assert "--gin.DROPOUT_RATE=0.0" in flags
        assert any(flag.startswith("--gin.TASK_FEATURE_LENGTHS={'inputs': 64") for flag in flags)


def test_a_recipe_that_it_cannot_reduce_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "gin").mkdir()
    for name in ("zz_t5x_tiny", "ro_t5x_tiny"):
        (tmp_path / f"gin/{name}.gin").write_text("")
    monkeypatch.setattr(upstream_losses, "ROOT", tmp_path)
    assert upstream_losses.all_recipes() == ["ro_t5x_tiny"]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["ro_t5x_tiny", "entities"])
def test_the_losses_are_upstreams(recipe):
    """Without a checkout of upstream, which is on no package index, ours alone trains."""
    if folder := os.environ.get("UPSTREAM_DIR"):
        assert upstream_losses.main([f"{folder}/t5x", recipe]) == 0
        return
    run = f"{upstream_losses.WORK}/{recipe}/alone"
    flags = [*upstream_losses.flags_of(recipe), "--gin.utils.RestoreCheckpointConfig.path=[]"]
    upstream_losses.train(recipe, run, flags, None)
    losses = upstream_losses.losses(run)
    assert [*losses] == [*range(1, upstream_losses.STEPS + 1)]
    assert losses[upstream_losses.STEPS] < losses[1]
