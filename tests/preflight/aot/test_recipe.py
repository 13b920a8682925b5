"""A recipe's gin files become the arguments of a training run."""

import pytest

from fakes.refuses import refuses
from preflight.aot import recipe
from preflight.aot.recipe import Recipe

pytestmark = pytest.mark.usefixtures("gin_apart")
TINY = "gin/ro_t5x_tiny.gin"


def test_one_recipe_after_another():
    assert recipe.load(Recipe((TINY,), ("TRAIN_STEPS = 7",))).total_steps == 7
    assert recipe.load(Recipe((TINY,))).total_steps == 300


def test_bindings_that_are_added_take_precedence():
    asked = Recipe((TINY,), ("TRAIN_STEPS = 7",)).with_bindings("TRAIN_STEPS = 8")
    assert asked.name == "ro_t5x_tiny"
    assert recipe.load(asked).total_steps == 8


def test_an_unset_model_dir_is_below_runs():
    assert recipe.load(Recipe((TINY,))).model_dir == "runs/ro_t5x_tiny"
    own = Recipe((TINY,), ("MODEL_DIR = '/tmp/x'",))
    assert recipe.load(own).model_dir == "/tmp/x"


def test_a_cooldown_branch_starts_from_its_source_and_ends_relative_to_it():
    flags = ("COOLDOWN_FROM = 'runs/long/checkpoint_200'", "TRAIN_STEPS_RELATIVE = 50")
    run = recipe.load(Recipe((TINY,), flags))
    assert run.total_steps == 250
    restore = run.checkpoint_cfg.restore
    assert (restore.path, restore.restore_dataset) == ("runs/long/checkpoint_200", True)
    own = Recipe((TINY,), (*flags, "MODEL_DIR = 'runs/long'"))
    with refuses("MODEL_DIR", "runs/long"):
        recipe.load(own)
